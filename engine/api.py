"""The one door to the engine: everything another package may import from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from engine.config import DeviceType, EngineConfig
from engine.errors import (
    EngineDeadError,
    EngineError,
    InvalidRequestError,
    ModelLoadError,
    OverloadedError,
    PromptTooLongError,
    ShuttingDownError,
    StreamBusyError,
    UnsupportedModelError,
)
from engine.output_stream import OutputStream
from engine.scripted import Script
from engine.text.protocol import Tokenizer
from engine.types import (
    EngineState,
    EngineStats,
    Finish,
    FinishDetail,
    FinishReason,
    FinishType,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    Progress,
    RequestId,
    RequestOutput,
    SamplingParams,
    Timing,
    TokenLogprobs,
    Usage,
)


class Engine(Protocol):
    """What the service needs. `generate` and `abort` belong to the loop that ran `start`."""

    @property
    def model(self) -> ModelInfo: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def state(self) -> EngineState: ...
    @property
    def stats(self) -> EngineStats: ...
    @property
    def num_requests(self) -> int:
        """Requests that were accepted and have not ended: exact, where `stats` is as of the last
        step."""
        ...

    @property
    def max_requests(self) -> int:
        """How many requests may run and wait at once (`max_num_seqs + max_queued_requests`).
        Known once the engine has started: it depends on the device."""
        ...

    async def start(self) -> None:
        """Starts the engine; returns when it can answer. Raises ModelLoadError."""
        ...

    def generate(self, request: GenerationRequest) -> AbstractAsyncContextManager[OutputStream]:
        """`async with engine.generate(request) as stream:` – entering submits without waiting,
        leaving the block for any reason aborts what still runs (detail `client_gone`).

        Entering raises InvalidRequestError (PromptTooLongError), OverloadedError,
        ShuttingDownError or EngineDeadError, and then nothing was accepted."""
        ...

    def abort(self, request_id: RequestId, detail: FinishType = FinishType.CANCELLED) -> None:
        """Ends a request soon; its stream gets the terminal output. Unknown ids are ignored."""
        ...

    def queue_position(self, request_id: RequestId) -> int | None:
        """How many requests wait ahead of this one; None once it has been scheduled. Those that
        were aborted, and those with forced tokens, stand in no line."""
        ...

    def watch_steps(self, on_step: Callable[[float, int], None]) -> None:
        """`on_step` is called on the loop, before the streams get a step's outputs: with the
        seconds that the step took, and how many sequences it brought tokens. One watches."""
        ...

    async def wait_failed(self) -> str:
        """Returns a sentence for people when the engine has failed; waits until then."""
        ...

    async def shutdown(self, grace_s: float) -> None:
        """Takes no new work, lets what runs end for `grace_s` seconds, ends the rest with
        detail `shutdown`, stops the thread. Idempotent."""
        ...


def create_engine(config: EngineConfig, on_progress: LoadProgress | None = None) -> Engine:
    """The engine for `config`; `start` loads the model, and torch with it. `on_progress` is
    called from the engine thread."""
    from engine.assembly import assemble_model
    from engine.async_engine import AsyncEngine

    return AsyncEngine(config, lambda: assemble_model(config, on_progress))


def create_scripted_engine(config: EngineConfig, script: Script | None = None) -> Engine:
    """The same engine with scripted answers in place of a model (`config.model` is not read):
    for tests and demo pages. Loads no torch."""
    from engine.assembly import assemble_scripted
    from engine.async_engine import AsyncEngine

    return AsyncEngine(config, lambda: assemble_scripted(config, script or Script()))


def load_tokenizer(config: EngineConfig) -> Tokenizer:
    """The tokenizer of the model that `config` names, without the model: for counting only (which
    tokens end an answer is the model's word). Raises ModelLoadError."""
    from engine.models.model_tokenizer import read_tokenizer

    return read_tokenizer(config)


__all__ = [
    "DeviceType",
    "Engine",
    "EngineConfig",
    "EngineDeadError",
    "EngineError",
    "EngineState",
    "EngineStats",
    "Finish",
    "FinishDetail",
    "FinishReason",
    "FinishType",
    "GenerationRequest",
    "InvalidRequestError",
    "LoadProgress",
    "ModelInfo",
    "ModelLoadError",
    "OutputStream",
    "OverloadedError",
    "Progress",
    "PromptTooLongError",
    "RequestId",
    "RequestOutput",
    "SamplingParams",
    "Script",
    "ShuttingDownError",
    "StreamBusyError",
    "Timing",
    "TokenLogprobs",
    "Tokenizer",
    "UnsupportedModelError",
    "Usage",
    "create_engine",
    "create_scripted_engine",
    "load_tokenizer",
]
