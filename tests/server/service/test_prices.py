"""What tokens cost, and where it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.api import Finish, FinishDetail, FinishType, Script, Usage
from server.app.answer_parts import add_usage
from server.app.factory import price_list
from server.command_line import ConfigError, load_config
from server.service.auth import UserId
from server.service.generation import Completion
from server.service.prices import PriceList
from server.service.run import Run
from server.service.usage import usage_json
from tests.server.service.harness import Json, Server, eventually, parse_sse, serving

PRICES = PriceList(input_hit=0.5, input_miss=2.0, output=8.0, currency="EUR")


def test_each_kind_of_token_has_its_price() -> None:
    assert PRICES.cost(Usage(prompt_tokens=1_000_000)) == 2.0
    assert PRICES.cost(Usage(prompt_tokens=1_000_000, cached_tokens=1_000_000)) == 0.5
    assert PRICES.cost(Usage(completion_tokens=1_000_000)) == 8.0
    assert PRICES.cost(Usage(100, 10, 60)) == (60 * 0.5 + 40 * 2 + 10 * 8) / 1e6
    assert PRICES.cost(Usage()) == 0


def test_single_tokens_are_not_rounded_away() -> None:
    assert PriceList(0, 0.01, 0).cost(Usage(prompt_tokens=1)) == 1e-8


@pytest.mark.parametrize("price", [-0.1, float("nan")])
def test_a_price_is_a_number_from_0(price: float) -> None:
    with pytest.raises(ValueError, match="output"):
        PriceList(0, 0, price)


def test_usage_tells_only_what_is_known() -> None:
    usage = Usage(100, 10, 60)
    assert not {"cost", "completion_tokens_details"} & usage_json(usage).keys()
    told = usage_json(usage, prices=PRICES, reasoning_tokens=4)
    assert told["cost"] == {"amount": 0.00019, "currency": "EUR"}
    assert told["completion_tokens_details"] == {"reasoning_tokens": 4}


async def _finished(server: Server, usage: Json) -> Json:
    """The `finish` event of a run whose application tells `usage`."""

    async def produce(run: Run) -> None:
        finish = Finish(FinishDetail(FinishType.EOS), Usage(1, 1))
        completion = Completion("", (), (), finish, "scripted", 1, False, finish.detail.to_json())
        server.service.generation.finish_run(run, completion, can_continue=False, usage=usage)

    run = server.service.runs.open(UserId("somebody"), produce)
    await eventually(lambda: run.is_finished)
    found: Json = json.loads(run.read(0)[-1].data)
    return found


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_an_answer_of_several_parts_costs_what_its_parts_cost() -> None:
    """Each part met the prompt once more, with what was there of the answer."""
    parts = [Usage(100, 10, 0), Usage(110, 5, 96), Usage(115, 7, 112)]
    told: Json | None = None
    for part in parts:
        told = add_usage(told, usage_json(part, prices=PRICES))
    assert told is not None
    async with serving(prices=PRICES) as server:
        finish = await _finished(server, told)
        whole = sum(PRICES.cost(part) for part in parts)
        assert finish["usage"]["cost"]["amount"] == pytest.approx(whole)
        assert finish["usage"]["completion_tokens"] == 22
    unknown = add_usage(usage_json(parts[0]), usage_json(parts[1], prices=PRICES))
    assert "cost" not in unknown, "of a part without prices there is no sum"


def test_options(tmp_path: Path) -> None:
    """All three prices or none: half a list would tell costs that are too low."""
    given = ["--data-dir", str(tmp_path), "--price-input-hit", "0.5", "--price-output", "8"]
    with pytest.raises(ConfigError, match="--price-input-miss must be given"):
        load_config(given)
    config = load_config([*given, "--price-input-miss", "2", "--price-currency", "EUR"])
    assert price_list(config) == PRICES
    assert price_list(load_config(["--data-dir", str(tmp_path)])) is None


async def _told(server: Server) -> dict[str, Json]:
    """The usage of the same answer, by each way of asking for it."""
    text = {"model": "scripted", "prompt": "p", "max_tokens": 4}
    usage = {"stream_options": {"include_usage": True}}
    found = {
        "chat": (await server.chat(max_tokens=4)).json()["usage"],
        "chat stream": (await server.stream(max_tokens=4, **usage))[-1]["usage"],
    }
    reply = await server.http.post("/v1/completions", json=text)
    found["text"] = reply.json()["usage"]
    reply = await server.http.post("/v1/completions", json={**text, "stream": True, **usage})
    found["text stream"] = parse_sse(reply.text)[-1]["usage"]
    reply = await server.http.post(
        "/v1/responses", json={"model": "scripted", "input": "hi", "max_output_tokens": 16}
    )
    found["response"] = reply.json()["usage"]
    async with server.socket() as socket:
        await socket.hello()
        await socket.ask(max_tokens=4)
        found["run"] = (await socket.answer())[-1]["usage"]
    return found


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_every_kind_of_reply_tells_the_cost_and_metrics_their_sum() -> None:
    script = Script(answer=lambda _: "twelve tokens", token_chars=1)
    async with serving(script, prices=PRICES) as server:
        total = 0.0
        for way, usage in (await _told(server)).items():
            names = ("input_tokens", "output_tokens") if way == "response" else None
            num_prompt, num_sampled = (
                usage[name] for name in names or ("prompt_tokens", "completion_tokens")
            )
            details = usage["input_tokens_details" if names else "prompt_tokens_details"]
            cost = PRICES.cost(Usage(num_prompt, num_sampled, details["cached_tokens"]))
            assert usage["cost"] == {"amount": cost, "currency": "EUR"}, way
            assert cost > 0
            total += cost
        several = (await server.chat(n=3, max_tokens=4)).json()["usage"]
        total += several["cost"]["amount"]
        metrics = (await server.http.get("/metrics")).text
        line = next(line for line in metrics.splitlines() if line.startswith("lectern_cost_total"))
        assert float(line.split()[-1]) == pytest.approx(total)


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_without_prices_nothing_is_said() -> None:
    async with serving() as server:
        for way, usage in (await _told(server)).items():
            assert "cost" not in usage, way
