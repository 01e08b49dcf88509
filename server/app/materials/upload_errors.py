"""What an upload may be refused for before anybody looks into it."""

from __future__ import annotations

from server.service.errors import ServiceError


class StorageFullError(ServiceError):
    """There is no room on the server's disk."""

    http_status = 507
    openai_type = "server_error"
    openai_code = "storage_full"
    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "The server's disk is full: nothing was stored. Tell whoever runs the server.",
            message_zh="服务器磁盘已满，没有保存任何内容。请联系服务器管理员。",
        )


class NotAnUploadError(ServiceError):
    """The body is not what a form with files sends."""

    code = "bad_request"
    http_status = 415
    openai_code = "unsupported_media_type"

    def __init__(self) -> None:
        super().__init__(
            "Files are uploaded as multipart/form-data, in fields called 'file'; nothing is "
            "fetched from an address.",
            param="file",
            message_zh="请以 multipart/form-data 表单的 file 字段上传文件；不会按网址抓取。",
        )
