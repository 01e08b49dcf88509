"""MaterialError       a file that cannot become a material; `code` says why
└── CourseFileError  a course folder's course.json is wrong

All are the fault of the file. The message is for people, in English and in Chinese.
"""

from __future__ import annotations

REASONS: dict[str, tuple[str, str]] = {
    "password_required": (
        "{name} is locked by a password. Remove the password and upload it again.",
        "{name} 设有密码。请去除密码后重新上传。",
    ),
    "no_text": (
        "No text was found in {name} (scanned?). A scan must go through text recognition first.",
        "在 {name} 中没有找到文字（是扫描件吗？）。扫描件需先经过文字识别。",
    ),
    "not_this_format": (
        "{name} is damaged, or is not the kind of file that its name says.",
        "{name} 已损坏，或者内容与扩展名不符。",
    ),
    "inflates_too_much": (
        "{name} is small but unpacks to more than {most_mb} MiB, so it was not opened.",
        "{name} 解压后超过 {most_mb} MiB，因此没有打开。",
    ),
    "too_many_pages": (
        "{name} has {pages} pages; at most {most} can be read. Split it into several files.",
        "{name} 有 {pages} 页，最多只能读取 {most} 页。请拆分为多个文件。",
    ),
    "too_many_files": (
        "{name} holds {files} files; at most {most} can be unpacked at once.",
        "{name} 内有 {files} 个文件，一次最多解压 {most} 个。",
    ),
    "too_big": (
        "{name} holds more than can be read in one file. Split it into several files.",
        "{name} 的内容超出单个文件可读取的范围。请拆分为多个文件。",
    ),
    "too_slow": (
        "Reading {name} took too long and was stopped. Split it, or save it in another format.",
        "读取 {name} 耗时过长，已被停止。请拆分文件，或另存为其他格式。",
    ),
    "undecodable": (
        "{name}: the text's encoding could not be found out. Save it as UTF-8, or choose its "
        "encoding.",
        "{name}：无法识别文字编码。请另存为 UTF-8，或手动选择编码。",
    ),
    "wrong_encoding": (
        "{name} is not text in the encoding {encoding}. Choose another encoding.",
        "{name} 的文字编码不是 {encoding}。请选择其他编码。",
    ),
    "parser_crashed": (
        "{name} could not be read: it broke the reader. Save it anew or in another format.",
        "无法读取 {name}：文件导致解析器出错。请重新保存或另存为其他格式。",
    ),
    "not_stored": (
        "{name} could not be stored: the server's disk or database failed. Try again later.",
        "无法保存 {name}：服务器的磁盘或数据库出错。请稍后重试。",
    ),
    "deleted": (
        "{name} was deleted before it was read.",
        "{name} 在读取之前已被删除。",
    ),
    "in_course": (
        "The course has this file already: {name} was uploaded a second time meanwhile.",
        "课程中已有此文件：{name} 同时被上传了两次。",
    ),
    "unsupported": (
        "{name}: files of this kind cannot be read. Supported are {supported}.",
        "{name}：不支持此类文件。支持的格式有 {supported}。",
    ),
}
"""Why a file was refused, by code: a sentence in English and one in Chinese."""

WARNINGS: dict[str, tuple[str, str]] = {
    "little_text": (
        "Most pages hold no text (scanned?): only what could be read is found.",
        "大部分页面没有文字（是扫描件吗？）：只能检索到可读取的内容。",
    ),
    "encoding_guessed": (
        "The text's encoding was guessed: please check the preview.",
        "文字编码是推测的：请检查预览。",
    ),
    "text_cut": (
        "The text ends in the middle of a character: the file seems to be cut.",
        "文字在一个字符中间结束：文件似乎不完整。",
    ),
}
"""What a teacher should know of a file that was read all the same, by code."""


class MaterialError(Exception):
    """A file that cannot become a material. `code` is a key of `REASONS`; `facts` fill its
    sentences, `name` always among them."""

    def __init__(self, code: str, **facts: str | int) -> None:
        english, chinese = REASONS[code]
        self.code = code
        self.facts = facts
        self.message = english.format(**facts)
        self.message_zh = chinese.format(**facts)
        super().__init__(self.message)


class CourseFileError(MaterialError):
    """A course folder whose `course.json` is missing or wrong."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.code = "course_file"
        self.facts = {}
        self.message = self.message_zh = message
