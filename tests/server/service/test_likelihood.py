"""How likely the served model holds a text: the sums, the bounds, and that nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.api import Script
from server.service.errors import PromptTooLongError, QueueFullError
from server.service.likelihood import Likelihood, LikelihoodQuestion
from tests.server.service.harness import TINY_MODEL, Server, eventually, serving

pytestmark = pytest.mark.anyio

CONTEXTS = ("The gate opens at nine.", "Rain <|im_end|> falls.")
LEAD, TEXT = "\nAsked:", " When?"


def question(*contexts: str, text: str = TEXT, max_tokens: int = 100) -> LikelihoodQuestion:
    return LikelihoodQuestion(contexts, LEAD, text, max_tokens)


@pytest.fixture
async def tiny(anyio_backend: object) -> AsyncIterator[Server]:
    async with serving(model=TINY_MODEL) as running:
        yield running


async def ask(likelihood: Likelihood, asked: LikelihoodQuestion, time_s: float = 20) -> list[float]:
    return await likelihood.ask(asked, user="u", salt="s", time_s=time_s)


def reference(context: str, text: str) -> float:
    """By transformers; the model's tokens are bytes, `<|im_end|>` as plain ones too."""
    model = AutoModelForCausalLM.from_pretrained(TINY_MODEL, dtype=torch.float32)
    before, after = (context + LEAD).encode(), text.encode()
    with torch.inference_mode():
        logits = model(torch.tensor([list(before + after)])).logits[0]
    rows = torch.log_softmax(logits, -1)[len(before) - 1 : -1]
    return float(rows.gather(1, torch.tensor(list(after))[:, None]).sum())


async def test_the_sum_of_the_text_s_tokens_after_each_context(tiny: Server) -> None:
    found = await ask(tiny.service.likelihood, question(*CONTEXTS))
    assert found == pytest.approx([reference(one, TEXT) for one in CONTEXTS], abs=1e-3)
    assert found[0] != pytest.approx(found[1], abs=1e-3)
    assert await ask(tiny.service.likelihood, question()) == []


async def test_a_long_context_counts_by_its_beginning(tiny: Server) -> None:
    long = "The gate opens at nine." + " It rains." * 20
    cut = await ask(tiny.service.likelihood, question(long, max_tokens=23))
    assert cut == pytest.approx([reference("The gate opens at nine.", TEXT)], abs=1e-3)
    # A window of 256 holds the question whatever the context.
    assert len(await ask(tiny.service.likelihood, question(long * 3, max_tokens=5000))) == 1
    with pytest.raises(PromptTooLongError):
        await ask(tiny.service.likelihood, question("short", text="x" * 250))


async def test_contexts_stay_in_the_cache(tiny: Server) -> None:
    long = "The gate opens at nine, and closes at five on every day of the week."
    first = await ask(tiny.service.likelihood, question(long))
    hits = tiny.engine.stats.prefix_hit_tokens
    second = await ask(tiny.service.likelihood, question(long))
    assert tiny.engine.stats.prefix_hit_tokens >= hits + 48
    assert second == pytest.approx(first, abs=1e-4)


async def test_it_takes_no_longer_than_it_may() -> None:
    async with serving(Script(prefill_s=0.3, token_s=0.3)) as server:
        with pytest.raises(TimeoutError):
            await ask(server.service.likelihood, question(*CONTEXTS), time_s=0.05)
        await server.until_idle()


async def test_it_stands_back_where_somebody_waits() -> None:
    async with serving(Script(token_s=0.05), max_num_seqs=1) as server:
        assert server.service.likelihood.is_free
        chats = [asyncio.create_task(server.chat("a long one " * 9)) for _ in range(3)]
        await eventually(lambda: server.engine.stats.num_waiting > 0)
        assert not server.service.likelihood.is_free
        for reply in await asyncio.gather(*chats):
            assert reply.status_code == 200
        assert server.service.likelihood.is_free


async def test_who_is_refused_leaves_nothing_behind() -> None:
    async with serving(Script(token_s=0.05), max_num_seqs=1, max_queued_requests=1) as server:
        with pytest.raises(QueueFullError):
            await ask(server.service.likelihood, question(*["one"] * 5))
        await server.until_idle()
