"""What Prometheus is told is what happened, and no client can make it endless."""

from __future__ import annotations

import json
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.api import Script
from server.service.auth import Auth
from server.service.engine_metrics import StepTimes, WeightedHistogram
from server.service.loop_lag import WINDOW_S, WorstLag
from server.service.prices import PriceList
from tests.server.service.harness import SECRET, TINY_MODEL, Server, eventually, serving

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scrape(server: Server, **headers: str) -> Samples:
    reply = await server.http.get("/metrics", headers=headers)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(reply.text)


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((f"lectern_{name}", frozenset(labels.items())), 0.0)


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_requests_and_what_they_took() -> None:
    prices = PriceList(0.0, 1_000_000.0, 2_000_000.0, "USD")
    async with serving(Script(answer=lambda _: "x" * 40), prices=prices) as server:
        whole = (await server.chat("hi", max_tokens=3)).json()["usage"]
        await server.stream("hi", max_tokens=5)
        await server.chat("hi", temperature=-1)
        await server.http.get("/v1/nothing")
        found = await scrape(server)
        chat, text = "/v1/chat/completions", "/v1/{unknown}"
        assert value(found, "http_requests_total", route=chat, status="200") == 2
        assert value(found, "http_requests_total", route=chat, status="400") == 1
        assert value(found, "http_requests_total", route=text, status="404") == 1
        assert value(found, "http_request_seconds_count", route=chat) == 3
        assert value(found, "refusals_total", code="bad_request") == 1
        assert value(found, "refusals_total", code="not_found") == 1
        assert value(found, "generations_finished_total", detail="max_tokens") == 2
        assert value(found, "completion_tokens_total") == 8
        assert value(found, "prompt_tokens_total") == 2 * whole["prompt_tokens"]
        assert value(found, "time_to_first_token_seconds_count") == 2
        assert value(found, "queue_seconds_count") == 2
        cached = value(found, "prompt_cached_tokens_total")
        computed = 2 * whole["prompt_tokens"] - cached
        assert value(found, "cost_total") == pytest.approx(computed * 1.0 + 8 * 2.0)
        assert value(found, "step_seconds_count") >= 8
        assert value(found, "inter_token_seconds_count") >= 6
        assert value(found, "kv_blocks_total") > 0
        assert 0 <= value(found, "kv_usage_ratio") <= 1
        looked_up = value(found, "prefix_lookup_tokens_total")
        hit_ratio = value(found, "prefix_hit_tokens_total") / looked_up
        assert value(found, "prefix_hit_ratio") == pytest.approx(hit_ratio)


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_sockets_and_runs_are_counted_while_they_last() -> None:
    async with serving(Script(answer=lambda _: "x" * 4000, token_s=0.01)) as server:
        async with server.socket() as socket:
            await socket.hello()
            await socket.ask("hi")
            await socket.until("delta")
            found = await scrape(server)
            assert value(found, "connections") == 1
            assert value(found, "runs") == 1
            assert value(found, "running_sequences") == 1
            await socket.send("cancel", run=(await socket.receive())["run"])
            await socket.answer()
            await socket.send("chat", id="b", messages=[{"role": "user", "content": "y" * 9000}])
            await socket.answer()
            await socket.send("cancel", run="none")
            await socket.until("error")
        await eventually(lambda: server.service.sockets.num_sessions == 0)
        found = await scrape(server)
        assert value(found, "connections") == 0
        assert value(found, "runs") == 0
        assert value(found, "generations_finished_total", detail="cancelled") == 1
        assert value(found, "refusals_total", code="prompt_too_long") == 1
        assert value(found, "refusals_total", code="not_found") == 1


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_what_the_start_took_and_what_runs() -> None:
    async with serving() as server:
        await eventually(lambda: b"loop_lag_seconds_count 0.0" not in _rendered(server))
        found = await scrape(server)
        assert value(found, "start_load_seconds") > 0
        assert value(found, "start_resident_bytes") > 10e6
        assert value(found, "kv_cache_tokens") == server.engine.model.kv_cache_tokens
        assert found["process_resident_memory_bytes", frozenset()] > 10e6
        assert value(found, "loop_lag_seconds_count") > 0
        time.sleep(0.2)  # noqa: ASYNC251 -- a loop that is held up, on a quiet machine too
        assert value(await scrape(server), "loop_lag_max_seconds") > 0.1
        (info,) = [dict(labels) for name, labels in found if name == "lectern_build_info"]
        assert info["model"] == server.engine.model.name
        assert info["version"]


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_the_cache_s_size_in_bytes() -> None:
    shape = json.loads((TINY_MODEL / "config.json").read_text())
    head_dim = shape["hidden_size"] // shape["num_attention_heads"]
    per_token = 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head_dim * 4
    async with serving(model=TINY_MODEL, kv_cache_tokens=1024) as server:
        found = await scrape(server)
        assert value(found, "kv_cache_bytes") == 1024 * per_token
        assert value(found, "start_gpu_bytes") == 0


def _rendered(server: Server) -> bytes:
    return server.service.metrics.render()


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_a_client_cannot_make_series() -> None:
    async with serving() as server:
        before = {name for name, _ in await scrape(server)}, len(await scrape(server))
        await server.http.get("/v1/a")
        known = len(await scrape(server))
        for path in ("/v1/b", "/c", "/v1/models/d", "/v1/models/e", "/v1/runs/f/events"):
            await server.http.get(path)
            await server.http.request("PROPFIND", path)
        await server.chat("hi", model="g")
        added = {(name, labels) for name, labels in await scrape(server)}
        assert len(added) - known < 120, "a few routes with their buckets"
        labels = {label for _, pairs in added for label in pairs if label[0] in ("route", "code")}
        assert labels <= {
            *(("route", route) for route in _ROUTES),
            *(("code", code) for code in ("not_found", "bad_request", "resume_gone")),
        }
        assert before[0] <= {name for name, _ in added}


_ROUTES = (
    "/metrics",
    "/v1/{unknown}",
    "/{unknown}",
    "/v1/models/{id}",
    "/v1/runs/{run}/events",
    "/v1/chat/completions",
)


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_where_keys_are_needed_a_scrape_needs_one_too() -> None:
    """From this machine as well: behind a proxy everybody is from here."""
    async with serving(auth=Auth(SECRET, ["sk"])) as server:
        assert (await server.http.get("/metrics")).status_code == 401
        assert await scrape(server, Authorization="Bearer sk")
        for path in ("/health", "/ready"):
            assert (await server.http.get(path)).status_code == 200


def test_a_step_counts_for_each_of_its_answers() -> None:
    times = StepTimes()
    times.observe(0.003, 256)
    times.observe(0.0031, 0)
    times.observe(20.0, 1)
    steps, between = times.collect()
    counts = {s.labels["le"]: s.value for s in between.samples if s.name.endswith("_bucket")}
    assert (counts["0.002"], counts["0.003"], counts["10"], counts["+Inf"]) == (0, 256, 256, 257)
    assert [s.value for s in steps.samples if s.name.endswith("_count")] == [3]
    total = [s.value for s in between.samples if s.name.endswith("_sum")]
    assert total == [pytest.approx(256 * 0.003 + 20)]


def test_a_value_on_a_bound_is_under_it() -> None:
    histogram = WeightedHistogram((1.0, 2.0))
    for one in (0.0, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(one)
    samples = histogram.family("x", "").samples
    assert [sample.value for sample in samples if sample.name == "x_bucket"] == [2, 4, 5]


def test_the_worst_lag_is_forgotten_in_time() -> None:
    now = 0.0
    worst = WorstLag(lambda: now)
    worst.observe(0.5)
    now = WINDOW_S * 0.99
    worst.observe(0.1)
    assert worst.seconds == 0.5
    now = WINDOW_S * 1.5
    worst.observe(0.2)
    assert worst.seconds == 0.5, "of the window before"
    now = WINDOW_S * 2.6
    assert worst.seconds == 0.2
    now = WINDOW_S * 10
    assert worst.seconds == 0.0
