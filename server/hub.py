"""The Hugging Face Hub as a source of models: asked briefly, never waited for.

The Hub's own library knows its address, its settings (HF_HUB_OFFLINE, HF_TOKEN, a mirror) and
how to fetch a repository; nothing here imports torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

_CONNECT_TIMEOUT_S = 4.0
_READ_TIMEOUT_S = 30.0
_PATTERNS = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.model", "*.txt"]
_COMPLETE = ".complete"


class HubError(Exception):
    """The Hub does not answer or does not have what was asked for."""


def looks_like_repository(name: str) -> bool:
    """Whether `name` has the form owner/name."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name) is not None


def stream_file(repository: str, file_name: str) -> Iterator[bytes]:
    """The bytes of one file. Raises HubError, within a few seconds when the Hub is away."""
    import httpx2
    from huggingface_hub import constants, get_session, hf_hub_url
    from huggingface_hub.errors import OfflineModeIsEnabled

    if constants.HF_HUB_OFFLINE:
        raise HubError("The Hub is not asked, because HF_HUB_OFFLINE is set.")
    timeout = httpx2.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
    try:
        with get_session().stream(
            "GET", hf_hub_url(repository, file_name), timeout=timeout, follow_redirects=True
        ) as response:
            response.raise_for_status()
            yield from response.iter_bytes()
    except (httpx2.HTTPError, OfflineModeIsEnabled) as error:
        raise HubError(f"The Hub does not give {repository} ({_reason(error)}).") from error


def fetch_repository(repository: str, folder: Path, say: Callable[[str], None]) -> Path:
    """A repository's configuration, tokenizer and safetensors, in a folder of its own. One that
    was fetched whole before is used without asking. Raises HubError."""
    target = folder / repository.replace("/", "--")
    if (target / _COMPLETE).exists():
        return target

    import httpx2
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if constants.HF_HUB_OFFLINE:
        raise HubError(f"{repository} is not here, and HF_HUB_OFFLINE is set.")
    say(f"Asking the Hub for {repository}.")
    try:
        files = HfApi().model_info(repository, timeout=_CONNECT_TIMEOUT_S).siblings or []
        names = [file.rfilename for file in files]
        if "config.json" not in names or not any(name.endswith(".safetensors") for name in names):
            raise HubError(
                f"The repository {repository} holds no config.json with safetensors weights."
            )
        snapshot_download(
            repository, local_dir=target, allow_patterns=_PATTERNS, etag_timeout=_CONNECT_TIMEOUT_S
        )
    except (httpx2.HTTPError, HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        raise HubError(f"The Hub does not give {repository} ({_reason(error)}).") from error
    (target / _COMPLETE).touch()
    return target


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
