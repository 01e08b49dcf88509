"""`AsyncEngine`: the engine thread, its inbox and the fan-out to asyncio.

The only module that knows both threads and asyncio. Loop → engine: a deque and an event, drained
once per step; nothing on the loop waits for the engine. Engine → loop: one
`call_soon_threadsafe` per step with everything that is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from engine.assembly import Assembly
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.errors import (
    EngineDeadError,
    InvalidRequestError,
    ModelLoadError,
    OverloadedError,
    PromptTooLongError,
    ShuttingDownError,
)
from engine.output_stream import OutputStream
from engine.text.protocol import Tokenizer
from engine.types import (
    EngineState,
    EngineStats,
    Finish,
    FinishDetail,
    FinishType,
    GenerationRequest,
    ModelInfo,
    RequestId,
    RequestOutput,
)

logger = logging.getLogger(__name__)

FAILURE_MESSAGE = "The engine failed; the server must be restarted."
ABORT_TIMEOUT_S = 5.0
"""How long `shutdown` waits for the engine thread to end what it aborted: a few steps."""
_HELD_FROM = 32
"""From so many running sequences on, a step's outputs are handed over when the next step has been
launched. What the loop makes of so many outputs takes the interpreter for about as long as the
planning of that step, and the device would wait for both. Fewer are handed over at once."""


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: RequestId
    detail: FinishType


@dataclass(frozen=True, slots=True)
class _AbortAll:
    detail: FinishType


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command = GenerationRequest | _Abort | _AbortAll | _Stop
_Deliver = Callable[[list[RequestOutput], EngineStats], None]
OnStep = Callable[[float, int], None]


class AsyncEngine:
    """Implements `Engine`. All fields belong to the loop's thread, except `_inbox`, which both
    threads use, and the `Assembly`'s core, which belongs to the engine thread."""

    def __init__(self, config: EngineConfig, assemble: Callable[[], Assembly]) -> None:
        self._config = config
        self._assemble = assemble
        self._inbox: deque[_Command] = deque()
        self._wake = threading.Event()
        self._state = EngineState.STARTING
        self._stats = EngineStats()
        self._streams: dict[RequestId, OutputStream] = {}
        self._unscheduled: dict[RequestId, None] = {}
        self._assembly: Assembly | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._failed = asyncio.Event()
        self._on_step: OnStep | None = None

    @property
    def model(self) -> ModelInfo:
        """Known once the engine has started."""
        return self._started().model

    @property
    def tokenizer(self) -> Tokenizer:
        """Known once the engine has started."""
        return self._started().tokenizer

    @property
    def state(self) -> EngineState:
        """Where the engine is in its life."""
        return self._state

    @property
    def stats(self) -> EngineStats:
        """As of the last step."""
        return self._stats

    @property
    def num_requests(self) -> int:
        """See `Engine.num_requests`."""
        return len(self._streams)

    @property
    def max_requests(self) -> int:
        """See `Engine.max_requests`."""
        return self._started().config.max_requests

    async def start(self) -> None:
        """Starts the thread, which loads the model. Raises ModelLoadError."""
        self._loop = asyncio.get_running_loop()
        ready: asyncio.Future[Assembly] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, ready), name="engine", daemon=True
        )
        self._thread.start()
        try:
            self._assembly = await ready
        except BaseException:
            self._state = EngineState.STOPPED
            self._send(_Stop())  # for a load that goes on after its caller was cancelled
            if ready.done() and not ready.cancelled():
                await self._join()
            raise
        self._stats = self._assembly.core.stats()
        self._state = EngineState.READY
        self._wake.set()

    def generate(self, request: GenerationRequest) -> AbstractAsyncContextManager[OutputStream]:
        """See `Engine.generate`."""
        return self._generate(request)

    @asynccontextmanager
    async def _generate(self, request: GenerationRequest) -> AsyncIterator[OutputStream]:
        self._check(request)
        request_id = request.request_id
        stream = OutputStream(request_id)
        self._streams[request_id] = stream
        # How likely a text is, is asked by the server and not by somebody who stands in line.
        if not request.forced_token_ids:
            self._unscheduled[request_id] = None
        self._idle.clear()
        self._send(request)
        try:
            yield stream
        finally:
            if stream.finish is None:
                self.abort(request_id, FinishType.CLIENT_GONE)

    def abort(self, request_id: RequestId, detail: FinishType = FinishType.CANCELLED) -> None:
        """See `Engine.abort`."""
        if request_id in self._streams:
            self._unscheduled.pop(request_id, None)
            self._send(_Abort(request_id, detail))

    def queue_position(self, request_id: RequestId) -> int | None:
        """See `Engine.queue_position`."""
        for position, waiting in enumerate(self._unscheduled):
            if waiting == request_id:
                return position
        return None

    def watch_steps(self, on_step: OnStep) -> None:
        """See `Engine.watch_steps`."""
        self._on_step = on_step

    async def wait_failed(self) -> str:
        """See `Engine.wait_failed`."""
        await self._failed.wait()
        return FAILURE_MESSAGE

    async def shutdown(self, grace_s: float) -> None:
        """See `Engine.shutdown`."""
        if self._thread is None or self._state is EngineState.STOPPED:
            self._state = EngineState.STOPPED
            return
        if self._state is EngineState.READY:
            self._state = EngineState.DRAINING
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._idle.wait()
            self._send(_AbortAll(FinishType.SHUTDOWN))
        self._send(_Stop())
        try:
            async with asyncio.timeout(ABORT_TIMEOUT_S):
                await self._stopped.wait()
            await self._join()
        except TimeoutError:
            logger.error("The engine thread did not stop within %.0f s.", ABORT_TIMEOUT_S)
            self._end_streams(FinishDetail(FinishType.SHUTDOWN), None)
        if self._state is not EngineState.DEAD:
            self._state = EngineState.STOPPED

    async def _join(self) -> None:
        """Waits for the thread, which has nothing left to do, to be gone; logs if it is not in
        time. Until then it may hold the last reference to the model, and where the interpreter
        ends while a thread frees tensors, the process is aborted."""
        assert self._thread is not None
        await asyncio.to_thread(self._thread.join, ABORT_TIMEOUT_S)
        if self._thread.is_alive():
            logger.error("The engine thread was not gone after %g s.", ABORT_TIMEOUT_S)

    def _started(self) -> Assembly:
        if self._assembly is None:
            raise EngineDeadError("The engine has not started.")
        return self._assembly

    def _check(self, request: GenerationRequest) -> None:
        """Refuses at once what cannot be answered, so that the engine thread never has to."""
        if self._state is EngineState.DEAD:
            raise EngineDeadError(FAILURE_MESSAGE)
        if self._state is not EngineState.READY:
            raise ShuttingDownError(f"The server is {self._state.value} and takes no new work.")
        if request.request_id in self._streams:
            raise InvalidRequestError(
                f"request_id {request.request_id!r} is in use", param="request_id"
            )
        model = self.model
        token_ids = request.prompt_token_ids + request.continued_token_ids
        num_tokens = len(token_ids)
        if num_tokens == 0:
            raise InvalidRequestError("The prompt is empty.", param="prompt")
        if num_tokens >= model.max_model_len:
            raise PromptTooLongError(num_tokens, model.max_model_len)
        if num_tokens >= model.kv_cache_tokens:
            raise PromptTooLongError(num_tokens, model.kv_cache_tokens, what="KV cache")
        for token_id in (min(token_ids), max(token_ids)):
            if not 0 <= token_id < model.vocab_size:
                raise InvalidRequestError(
                    f"Token id {token_id} is outside the vocabulary of {model.vocab_size}.",
                    param="prompt",
                )
        request.params.check_vocabulary(model.vocab_size)
        _check_forced(request.forced_token_ids, model.vocab_size)
        limit = self.max_requests
        if len(self._streams) >= limit:
            raise OverloadedError(
                f"{len(self._streams)} requests are running or waiting, and "
                f"{limit} is the limit (max_num_seqs + max_queued_requests)."
            )

    def _send(self, command: _Command) -> None:
        self._inbox.append(command)
        self._wake.set()

    # From here on the loop's side of the fan-out.

    def _deliver(self, outputs: list[RequestOutput], stats: EngineStats) -> None:
        if self._on_step is not None and stats.num_steps != self._stats.num_steps:
            num_continued = sum(1 for output in outputs if output.token_ids)
            self._on_step(stats.last_step_s, num_continued)
        self._stats = stats
        streams, unscheduled = self._streams, self._unscheduled
        max_pending_chars = self._config.max_pending_chars
        for output in outputs:
            request_id = output.request_id
            if unscheduled:
                unscheduled.pop(request_id, None)
            stream = streams.get(request_id)
            if stream is None:
                continue
            stream.put(output)
            if output.finish is not None:
                del streams[request_id]
            elif stream.pending_chars > max_pending_chars:
                self.abort(request_id, FinishType.SLOW_CLIENT)
        if not self._streams:
            self._idle.set()

    def _end_streams(self, detail: FinishDetail, message: str | None) -> None:
        self._deliver(
            [
                RequestOutput(request_id, finish=Finish(detail, message=message))
                for request_id in self._streams
            ],
            self._stats,
        )

    def _on_stopped(self, failed: bool) -> None:
        if failed:
            self._state = EngineState.DEAD
            self._failed.set()
        # Requests that were still in the inbox, and everything after a failure.
        detail = FinishType.ERROR if failed else FinishType.SHUTDOWN
        self._end_streams(FinishDetail(detail), FAILURE_MESSAGE if failed else None)
        self._stopped.set()

    # From here on the engine thread.

    def _run(self, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[Assembly]) -> None:
        try:
            assembly = self._assemble()
        except BaseException as error:  # noqa: BLE001 - whatever it is, `start` raises it
            # A panic in a Rust library is a BaseException, which no caller would catch.
            if not isinstance(error, Exception):
                error = ModelLoadError(f"The model cannot be loaded: {error}")
            _call(loop, _settle, ready, error)
            _call(loop, self._stopped.set)
            return
        _call(loop, _settle, ready, assembly)
        failed = False
        try:
            self._serve(loop, assembly)
        except BaseException:  # a panic too: nobody else would tell the streams
            logger.exception("The engine thread failed.")
            failed = True
        _call(loop, self._on_stopped, failed)

    def _serve(self, loop: asyncio.AbstractEventLoop, assembly: Assembly) -> None:
        deliveries = _Deliveries(loop, self._deliver)
        try:
            self._serve_until_stopped(assembly.core, deliveries)
        finally:
            deliveries.hand_over()

    def _serve_until_stopped(self, core: EngineCore, deliveries: _Deliveries) -> None:
        while True:
            if not core.has_work:
                deliveries.hand_over()
            while not core.has_work and not self._inbox:
                if not core.idle():
                    self._wake.wait()
                    break
            self._wake.clear()
            outputs: list[RequestOutput] = []
            while self._inbox:
                match self._inbox.popleft():
                    case GenerationRequest() as request:
                        core.add(request)
                    case _Abort(request_id, detail):
                        outputs += core.abort(request_id, detail)
                    case _AbortAll(detail):
                        outputs += core.abort_all(detail)
                    case _Stop():
                        outputs += core.abort_all(FinishType.SHUTDOWN)
                        deliveries.add(outputs, core.stats())
                        return
            if core.has_work:
                outputs += core.step(deliveries.hand_over)
            if outputs:
                stats = core.stats()
                deliveries.add(outputs, stats)
                if stats.num_running < _HELD_FROM or not core.num_in_flight:
                    deliveries.hand_over()


class _Deliveries:
    """Outputs on their way to the loop, at most one step's of them held. Owned by the engine
    thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: _Deliver) -> None:
        self._loop = loop
        self._deliver = deliver
        self._held: tuple[list[RequestOutput], EngineStats] | None = None

    def add(self, outputs: list[RequestOutput], stats: EngineStats) -> None:
        """Holds `outputs`; what was held before them is handed over."""
        self.hand_over()
        self._held = (outputs, stats)

    def hand_over(self) -> None:
        """Gives the loop what is held. Idempotent."""
        if self._held is not None:
            outputs, stats = self._held
            self._held = None
            _call(self._loop, self._deliver, outputs, stats)


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    """Runs `callback` on the loop; a loop that is closed has nobody left to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)


def _settle(ready: asyncio.Future[Assembly], result: Assembly | Exception) -> None:
    if ready.done():
        return
    if isinstance(result, Assembly):
        ready.set_result(result)
    else:
        ready.set_exception(result)


def _check_forced(token_ids: tuple[int, ...], vocab_size: int) -> None:
    limit = GenerationRequest.MAX_FORCED_TOKENS
    if len(token_ids) > limit:
        raise InvalidRequestError(
            f"forced_token_ids has {len(token_ids)} tokens; at most {limit} may be forced.",
            param="forced_token_ids",
        )
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequestError(
                f"forced_token_ids names token {token_id}, which is outside the vocabulary of "
                f"{vocab_size}.",
                param="forced_token_ids",
            )
