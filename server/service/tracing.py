"""`Tracing`: a span of each HTTP request and each run for an OpenTelemetry collector, with the
parts of a generation below it.

Spans are made when a request has ended, from the times that are measured anyway: a request that
runs costs nothing more. Needs the extra `tracing`, which is imported only where it is asked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.api import FinishType, Timing
from server.service.errors import InternalError
from server.service.exchange import CLIENT_LEFT, Exchange
from server.service.http import text_header
from server.service.run import Run
from server.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter

_CLOSE_TIMEOUT_S = 2.0
_TIMING = ("queue_ms", "ttft_ms", "total_ms")
_TRACES_PATH = "/v1/traces"

_Attributes = dict[str, str | int]
_Part = tuple[str, float, float]
"""Name, begin and end, points of `time.monotonic()`."""


class TracingUnavailableError(Exception):
    """Traces were asked for and cannot be made; the message is a sentence."""


class Tracing:
    """Owned by the event loop's thread; the exporter has a thread of its own, and drops spans
    rather than wait for a collector."""

    def __init__(self, exporter: SpanExporter) -> None:
        """Raises TracingUnavailableError without the extra."""
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind, Status, StatusCode
            from opentelemetry.trace.propagation import set_span_in_context
            from opentelemetry.trace.propagation.tracecontext import (
                TraceContextTextMapPropagator,
            )
        except ImportError as error:
            raise _unavailable() from error
        resource = Resource.create({"service.name": "lectern", "service.version": VERSION})
        # Ended by `close`, not at the interpreter's exit, which nobody waits for.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("lectern", VERSION)
        self._propagator = TraceContextTextMapPropagator()
        self._in_context = set_span_in_context
        self._server_kind, self._failed = SpanKind.SERVER, Status(StatusCode.ERROR)

    def exchange_ended(self, exchange: Exchange) -> None:
        """Tells of a request; its parent is the caller's, by W3C's `traceparent`."""
        status = exchange.status or CLIENT_LEFT
        attributes: _Attributes = {
            "http.request.method": exchange.method,
            "http.route": exchange.route,
            "http.response.status_code": status,
            "lectern.request_id": exchange.id.decode("ascii"),
        }
        if exchange.detail is not None:
            attributes["lectern.detail"] = exchange.detail
        if exchange.usage is not None:
            attributes |= _usage(
                exchange.usage.prompt_tokens,
                exchange.usage.completion_tokens,
                exchange.usage.cached_tokens,
            )
        timings = [finish.timing for finish in exchange.finishes]
        self._tell(
            _Told(
                f"{exchange.method} {exchange.route}",
                exchange.arrived_s,
                attributes,
                _parts(timings, exchange.ended_s or exchange.arrived_s),
                is_failed=status >= 500 or exchange.detail == FinishType.ERROR.value,
            ),
            self._parent(exchange),
        )

    def run_ended(self, run: Run) -> None:
        """Tells of a run, which has no parent: a WebSocket's messages carry none."""
        ending = run.ending or {}
        attributes: _Attributes = {"lectern.run": run.id}
        timings = []
        if "finish_detail" in ending:
            usage, timing = ending["usage"], ending["timing"]
            attributes["lectern.detail"] = ending["finish_detail"]["type"]
            attributes |= _usage(
                usage["prompt_tokens"],
                usage["completion_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
            )
            queue_s, ttft_s, total_s = (
                None if timing[name] is None else timing[name] / 1000 for name in _TIMING
            )
            timings.append(Timing(queue_s, ttft_s, total_s or 0.0))
        else:
            attributes["lectern.detail"] = ending.get("code", "")
        parts = [part for part in _parts(timings, time.monotonic()) if part[1] >= run.opened_s]
        is_failed = attributes["lectern.detail"] == InternalError.code
        self._tell(_Told("run", run.opened_s, attributes, parts, is_failed), None)

    def _tell(self, told: _Told, parent: Context | None) -> None:
        now_s = time.monotonic()
        clock = _Clock(now_s)
        span = self._tracer.start_span(
            told.name,
            context=parent,
            kind=self._server_kind,
            attributes=told.attributes,
            start_time=clock.ns(told.began_s),
        )
        for name, begin_s, end_s in told.parts:
            part = self._tracer.start_span(
                name, context=self._in_context(span), start_time=clock.ns(begin_s)
            )
            part.end(clock.ns(end_s))
        if told.is_failed:
            span.set_status(self._failed)
        span.end(clock.ns(now_s))

    def close(self) -> None:
        """Sends what is left. Idempotent; blocks, but not for long: the SDK would try for half a
        minute where no collector answers."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_S)

    def _parent(self, exchange: Exchange) -> Context:
        carrier = {
            name: value
            for name in ("traceparent", "tracestate")
            if (value := text_header(exchange.scope, name.encode())) is not None
        }
        return self._propagator.extract(carrier)


def otlp_tracing(endpoint: str) -> Tracing:
    """Traces for the collector at `endpoint`, such as `http://127.0.0.1:4318`. Raises
    TracingUnavailableError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _unavailable() from error
    address = endpoint.rstrip("/")
    if not address.endswith(_TRACES_PATH):
        address += _TRACES_PATH
    return Tracing(OTLPSpanExporter(endpoint=address))


@dataclass(frozen=True, slots=True)
class _Told:
    """A span that ends now; `parts` are its children."""

    name: str
    began_s: float
    attributes: _Attributes
    parts: Sequence[_Part]
    is_failed: bool


class _Clock:
    """Turns points of `time.monotonic()` into those of the calendar."""

    def __init__(self, now_s: float) -> None:
        self._offset_ns = time.time_ns() - round(now_s * 1e9)

    def ns(self, point_s: float) -> int:
        return self._offset_ns + round(point_s * 1e9)


def _usage(prompt: int, completion: int, cached: int) -> _Attributes:
    return {
        "gen_ai.usage.input_tokens": prompt,
        "gen_ai.usage.output_tokens": completion,
        "lectern.cached_tokens": cached,
    }


def _parts(timings: Sequence[Timing], ended_s: float) -> list[_Part]:
    """What a request's generations did: each part from the first that entered it to the first
    that left it, the last to the end of all, which was at `ended_s`."""
    arrived_s = ended_s - max((timing.total_s for timing in timings), default=0.0)
    queues = [timing.queue_s for timing in timings if timing.queue_s is not None]
    firsts = [timing.ttft_s for timing in timings if timing.ttft_s is not None]
    if not queues:
        return [("queue", arrived_s, ended_s)] if timings else []
    began_s = arrived_s + min(queues)
    parts = [("queue", arrived_s, began_s)]
    first_s = arrived_s + min(firsts) if firsts else ended_s
    parts.append(("prefill", began_s, first_s))
    if firsts:
        parts.append(("decode", first_s, ended_s))
    return parts


def _unavailable() -> TracingUnavailableError:
    return TracingUnavailableError(
        "--otlp-endpoint needs the extra 'tracing': pip install 'lectern[tracing]'."
    )
