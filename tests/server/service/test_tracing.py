"""Spans of requests, as OpenTelemetry's own exporter in memory gets them."""

from __future__ import annotations

import gzip
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from engine.api import Script
from server.service.limits import ServiceLimits
from server.service.tracing import Tracing, TracingUnavailableError, otlp_tracing
from server.version import VERSION
from tests.server.service.harness import MODEL, Server, serving

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Traced:
    """Tracing whose spans stay here."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracing = Tracing(self._exporter)

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        self.tracing.close()
        return {span.name: span for span in self._exporter.get_finished_spans()}


def _ns(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


async def _ask(server: Server, *, stream: bool, **headers: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    reply = await server.http.post("/v1/chat/completions", json=body, headers=headers)
    assert reply.status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_a_span_with_its_parts(stream: bool) -> None:
    traced = Traced()
    script = Script(answer=lambda _: "x" * 40, token_s=0.005)
    async with serving(script, tracing=traced.tracing) as server:
        parent = f"00-{TRACE}-{PARENT}-01"
        await _ask(server, stream=stream, traceparent=parent, **{"X-Request-Id": "me"})
    spans = traced.spans
    request = spans["POST /v1/chat/completions"]
    assert request.context is not None
    assert request.parent is not None
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT
    assert request.kind is SpanKind.SERVER
    assert request.attributes is not None
    told = dict(request.attributes)
    assert told["http.response.status_code"] == 200
    assert told["lectern.request_id"] == "me"
    assert told["lectern.detail"] == "eos"
    assert told["gen_ai.usage.output_tokens"] == 11
    assert request.resource.attributes["service.version"] == VERSION
    parts = [spans[name] for name in ("queue", "prefill", "decode")]
    assert len(spans) == 1 + len(parts)
    for part in parts:
        assert part.parent is not None
        assert part.parent.span_id == request.context.span_id
        assert _ns(request)[0] <= _ns(part)[0] <= _ns(part)[1] <= _ns(request)[1]
    for before, after in pairwise(parts):
        assert _ns(before)[1] == _ns(after)[0]
    begin, end = _ns(parts[-1])
    assert end - begin > 30e6, "ten tokens of 5 ms after the first"


async def test_a_run_is_a_span_too() -> None:
    traced = Traced()
    async with serving(tracing=traced.tracing) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask("hi")
        finish = (await socket.answer())[-1]
    spans = traced.spans
    assert spans.keys() == {"run", "queue", "prefill", "decode"}
    run = spans["run"]
    assert run.attributes is not None
    assert run.attributes["lectern.run"] == finish["run"]
    assert run.attributes["gen_ai.usage.output_tokens"] == finish["usage"]["completion_tokens"]
    assert run.status.status_code is StatusCode.UNSET


async def test_a_run_that_fails_is_marked() -> None:
    traced = Traced()
    script = Script(answer=lambda _: "x" * 40, fail_after=2)
    async with serving(script, tracing=traced.tracing) as server, server.socket() as socket:
        await socket.hello()
        await socket.ask("hi")
        assert (await socket.answer())[-1]["code"] == "internal"
    (run,) = traced.spans.values()
    assert run.status.status_code is StatusCode.ERROR


async def test_a_refused_request_has_no_parts() -> None:
    traced = Traced()
    async with serving(tracing=traced.tracing) as server:
        await server.chat("hi", temperature=-1)
        await server.service.shutdown(0)
        await server.chat("hi")
    (request,) = traced.spans.values()
    assert request.status.status_code is StatusCode.ERROR, "the last one: 503"
    assert request.parent is None


async def test_a_request_that_ran_out_of_time_has_the_parts_it_had() -> None:
    traced = Traced()
    limits = ServiceLimits(request_timeout_s=1.0)
    script = Script(answer=lambda _: "x" * 4000, token_s=0.02)
    async with serving(script, limits=limits, tracing=traced.tracing) as server:
        await _ask(server, stream=True)
    assert traced.spans.keys() == {"POST /v1/chat/completions", "queue", "prefill", "decode"}


@pytest.mark.parametrize("header", ["", "x", f"00-{'0' * 32}-{PARENT}-01", "00-zz-yy-01"])
async def test_a_parent_that_is_none_begins_a_trace(header: str) -> None:
    traced = Traced()
    async with serving(tracing=traced.tracing) as server:
        await _ask(server, stream=False, traceparent=header)
    assert traced.spans["POST /v1/chat/completions"].parent is None


def test_without_the_extra_it_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("opentelemetry.exporter"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracingUnavailableError, match="extra 'tracing'"):
        otlp_tracing("http://127.0.0.1:4318")


async def test_a_collector_that_is_not_there_holds_nothing_up() -> None:
    """The SDK alone tried for 30 s at the end."""
    tracing = otlp_tracing("http://127.0.0.1:9/")
    async with serving(tracing=tracing) as server:
        await _ask(server, stream=False)
    began = time.monotonic()
    tracing.close()
    assert time.monotonic() - began < 5


async def test_a_collector_gets_them() -> None:
    with _Collector() as collector:
        tracing = otlp_tracing(f"http://127.0.0.1:{collector.port}")
        async with serving(tracing=tracing) as server:
            await _ask(server, stream=False)
        tracing.close()
        assert [path for path, _ in collector.received] == ["/v1/traces"]
        body = collector.received[0][1]
    for name in (b"POST /v1/chat/completions", b"prefill", b"lectern"):
        assert name in body


class _Collector:
    """Takes what is posted to it, in a thread of its own."""

    def __init__(self) -> None:
        received: list[tuple[str, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                received.append((self.path, body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.received = received
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> _Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
