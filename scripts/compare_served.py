"""A class that asks a server at once: chat requests over HTTP, the same for every server."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import statistics
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from scripts.chat_client import Answer, ask
from scripts.compare_worker import ChildError, child

TEXT = (
    "the course teaches how a model reads text and what it keeps in memory while people wait for "
    "an answer each week has one lecture one lab and some time for questions students work in "
    "small groups and write short reports about the results they found last year many asked why "
    "good plans fail so we now begin with simple cases first measure then change one thing and "
    "measure again after that compare both numbers and say which part made the difference long "
    "lists of facts help less than one clear example from real life most problems come from poor "
    "data wrong units or old code that nobody wants to touch the best way to learn is to build "
    "something small and show it to others who will find every hole in it bring paper water and "
    "a friend to the room on the second floor where old machines still run day and night"
)
WORDS = TEXT.split()
"""Common words: with a space before it, each is one token of most vocabularies."""

TEMPLATE_TOKENS = 14
"""What a chat template adds to a system and a user message, about."""
READY_PAUSE_S = 0.1
Adapt = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Load:
    """`num_requests` chat requests, `num_together` at a time. Prompts have about `min_prompt` to
    `max_prompt` tokens, of which the first `shared` are one of `num_prefixes`; every answer has
    `num_tokens`, EOS ignored."""

    num_requests: int
    num_together: int
    min_prompt: int
    max_prompt: int
    num_tokens: int
    shared: int = 300
    num_prefixes: int = 4

    def shortened(self) -> Load:
        """The same in small, to see that everything runs."""
        return replace(
            self, num_requests=4, num_together=2, min_prompt=60, max_prompt=80, num_tokens=8,
            shared=30, num_prefixes=2,
        )  # fmt: skip

    @property
    def tokens_per_slot(self) -> int:
        """Room that one request needs, with some to spare: prompts are made of words."""
        return -(-(self.max_prompt * 5 // 4 + self.num_tokens) // 256) * 256


CLASS_LOAD = Load(32, 16, 345, 723, 128)
SMALL_CLASS_LOAD = Load(16, 8, 340, 718, 64)


def chat_bodies(load: Load, seed: int) -> list[dict[str, Any]]:
    """The requests of `load` in the order of sending; another seed shares no prefix with it."""
    generator = random.Random(seed)

    def words(count: int) -> str:
        return " ".join(generator.choices(WORDS, k=max(1, count)))

    prefixes = [words(load.shared - TEMPLATE_TOKENS // 2) for _ in range(load.num_prefixes)]
    span, last = load.max_prompt - load.min_prompt, max(1, load.num_requests - 1)
    lengths = [load.min_prompt + span * index // last for index in range(load.num_requests)]
    generator.shuffle(lengths)
    return [
        {
            "messages": [
                {"role": "system", "content": prefixes[index % load.num_prefixes]},
                {
                    "role": "user",
                    "content": words(length - load.shared - TEMPLATE_TOKENS // 2),
                },
            ],
            "max_tokens": load.num_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        for index, length in enumerate(lengths)
    ]


def summary(answers: Sequence[Answer]) -> dict[str, float]:
    """Output tokens per second over the whole run, and times to first token, in seconds."""
    seconds = max(a.last_s for a in answers) - min(a.sent_s for a in answers)
    return {
        "tokens_per_s": sum(answer.completion_tokens for answer in answers) / seconds,
        "ttft_p50_s": statistics.median(answer.ttft_s for answer in answers),
        "ttft_max_s": max(answer.ttft_s for answer in answers),
        "shortest_prompt": min(answer.prompt_tokens for answer in answers),
        "longest_prompt": max(answer.prompt_tokens for answer in answers),
        "cached_tokens": sum(answer.cached_tokens for answer in answers),
    }


async def run_load(
    address: str, load: Load, seed: int, timeout_s: float, adapt: Adapt = dict
) -> dict[str, float]:
    """Sends `load` to the server at `address`, one small request first that does not count; each
    body as `adapt` changes it. Raises ChildError when an answer fails, is short, or when all take
    over `timeout_s`."""
    # A connection for each request: one that is kept may be closed just when it is used again.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=address, timeout=timeout_s, limits=limits) as client:
        warm_up = replace(load, num_requests=1, num_tokens=min(8, load.num_tokens))
        waiting = map(adapt, chat_bodies(load, seed))

        async def student() -> list[Answer]:
            # One iterator for all: whoever is free takes the next.
            return [await ask(client, body) for body in waiting]

        try:
            async with asyncio.timeout(timeout_s):
                await ask(client, adapt(chat_bodies(warm_up, -1 - seed)[0]))
                lists = await asyncio.gather(*(student() for _ in range(load.num_together)))
        except TimeoutError:
            raise ChildError(f"the requests took over {timeout_s:g} s") from None
        except (httpx.HTTPError, ValueError) as error:
            raise ChildError(f"a request failed: {error!r}") from error
    answers = list(itertools.chain.from_iterable(lists))
    if any(answer.completion_tokens != load.num_tokens for answer in answers):
        raise ChildError(f"an answer has not {load.num_tokens} tokens")
    return summary(answers)


@asynccontextmanager
async def server(
    command: Sequence[str], ready_path: str, timeout_s: float, log: Path
) -> AsyncIterator[str]:
    """The address of a server that runs inside the block and has answered `ready_path`: `command`
    with a free port of loopback. What it prints is appended to `log`. Raises ChildError."""
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    with log.open("ab") as out:
        async with child([*command, "--port", str(port)], stdout=out, stderr=out) as process:
            try:
                async with asyncio.timeout(timeout_s):
                    await _wait_ready(address + ready_path, process)
            except TimeoutError:
                raise ChildError(f"{command[0]} was not ready within {timeout_s:g} s") from None
            yield address


async def _wait_ready(url: str, process: asyncio.subprocess.Process) -> None:
    async with httpx.AsyncClient() as client:
        while process.returncode is None:
            with suppress(httpx.TransportError):
                if (await client.get(url)).status_code == httpx.codes.OK:
                    return
            # Servers of several makes have only this in common: asking again.
            await asyncio.sleep(READY_PAUSE_S)
    raise ChildError(f"the server ended with {process.returncode} before it was ready")


def _free_port() -> int:
    """A TCP port of the loopback address that nobody used a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
