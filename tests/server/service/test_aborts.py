"""Every way in which an answer can end before it is whole, on every route: the engine gets its
blocks back within two steps, and nothing is left behind (ABT-01, ABT-04)."""

from __future__ import annotations

import asyncio
import json
import threading
from random import Random
from typing import Any

import pytest

from engine.api import FinishType, RequestId, Script
from server.service.auth import UserId
from server.service.limits import ServiceLimits
from server.service.messages import ChatMessage
from server.service.options import GenerationOptions
from server.service.run import Run
from tests.server.service.harness import Server, eventually, serving
from tests.server.service.request_books import (
    ENDLESS,
    PROMPT,
    ROUTES,
    TORRENT,
    Books,
    Bystander,
    raw_request,
    request_body,
)
from tests.support.cases import case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

WAYS = [
    pytest.param(route, stream, n, id=f"{route}-{'stream' if stream else 'whole'}-{n}")
    for route in ROUTES
    for stream in (True, False)
    for n in (1, 3)
    if n == 1 or route != "response"
]
ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def _check_reply(route: str, text: str, stream: bool, n: int) -> None:
    """Each choice ends once, by `abort`; a stream has one end."""
    if not stream:
        reply = json.loads(text)
        if route != "response":
            assert [choice["finish_reason"] for choice in reply["choices"]] == ["abort"] * n
        return
    events = [line for line in text.splitlines() if line.startswith("data: ")]
    if route == "response":
        ends = [event for event in events if any(f'"type":"{end}"' in event for end in ENDS)]
        assert ends == events[-1:]
        return
    assert events.pop() == "data: [DONE]"
    told = [choice for event in events for choice in json.loads(event[6:])["choices"]]
    finished = [choice["index"] for choice in told if choice["finish_reason"] is not None]
    assert sorted(finished) == list(range(n))


@pytest.mark.parametrize(("route", "stream", "n"), WAYS)
async def test_a_client_that_leaves(
    route: str, stream: bool, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(ENDLESS) as server, Bystander(server):
        books = Books(server, monkeypatch)
        connection = await raw_request(
            server, ROUTES[route], request_body(route, stream=stream, n=n)
        )
        await books.until_running(n)
        connection.close()
        await books.check(FinishType.CLIENT_GONE, n)


@pytest.mark.parametrize(("route", "stream", "n"), WAYS)
async def test_a_deadline(
    route: str, stream: bool, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(ENDLESS) as server, Bystander(server):
        books = Books(server, monkeypatch)
        body = request_body(route, stream=stream, n=n, timeout=0.6)
        reply = await server.http.post(ROUTES[route], json=body, headers={"connection": "close"})
        assert reply.status_code == 200
        assert "ab" in reply.text, "what was made in time is told"
        assert '"deadline"' in reply.text
        _check_reply(route, reply.text, stream, n)
        await books.check(FinishType.DEADLINE, n)


@pytest.mark.parametrize(("route", "stream", "n"), WAYS)
async def test_a_shutdown(
    route: str, stream: bool, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(ENDLESS) as server, Bystander(server):
        books = Books(server, monkeypatch)
        body = request_body(route, stream=stream, n=n)
        asking = asyncio.create_task(
            server.http.post(ROUTES[route], json=body, headers={"connection": "close"})
        )
        await books.until_running(n)
        await server.service.shutdown(0)
        reply = await asking
        _check_reply(route, reply.text, stream, n)
        await books.check(FinishType.SHUTDOWN, n)


@pytest.mark.parametrize(("route", "n"), [("chat", 1), ("chat", 3), ("text", 1), ("response", 1)])
async def test_a_client_that_does_not_read(
    route: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ServiceLimits(send_timeout_s=0.2)
    async with serving(TORRENT, limits=limits) as server, Bystander(server):
        books = Books(server, monkeypatch)
        body = request_body(route, stream=True, n=n)
        connection = await raw_request(server, ROUTES[route], body)
        await books.check(FinishType.SLOW_CLIENT, n)
        connection.close()


@pytest.mark.parametrize("route", ["chat", "text"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_queue_that_is_full_in_the_middle_of_a_request(
    route: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were in already are no clients that left."""
    async with serving(ENDLESS) as server, Bystander(server):
        books = Books(server, monkeypatch, refuse_from=2)
        body = request_body(route, stream=stream, n=3)
        reply = await server.http.post(ROUTES[route], json=body, headers={"connection": "close"})
        assert reply.status_code == 429
        assert reply.json()["error"]["code"] == "queue_full"
        assert int(reply.headers["retry-after"]) >= 1
        await books.check(FinishType.CANCELLED, 2, is_counted=False)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_that_does_not_fit_is_refused_before_any_of_it_begins(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(ENDLESS, max_num_seqs=3, max_queued_requests=0) as server:
        async with Bystander(server):
            books = Books(server, monkeypatch)
            body = request_body("chat", stream=stream, n=3)
            reply = await server.http.post(ROUTES["chat"], json=body)
            assert reply.json()["error"]["code"] == "queue_full"
            assert books.submitted == []
        await server.until_idle()
        too_many = await server.chat(n=4)
        assert (too_many.status_code, too_many.json()["error"]["param"]) == (400, "n")


@pytest.mark.parametrize("stream", [True, False])
async def test_the_engine_s_failure_for_one_choice_ends_the_others(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no clients that left, either. One runs at a time, so they wait when it fails."""
    script = Script(answer=lambda _: "ab" * 500, token_s=0.003, token_chars=2, fail_after=5)
    async with serving(script, max_num_seqs=1) as server:
        books = Books(server, monkeypatch)
        body = request_body("chat", stream=stream, n=3)
        reply = await server.http.post(ROUTES["chat"], json=body, headers={"connection": "close"})
        assert reply.text.count('"error"') == 1
        await books.check(FinishType.ERROR, 3)


async def test_a_run_that_its_reader_abandons(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ServiceLimits(abandon_grace_s=0.05)
    async with serving(ENDLESS, limits=limits) as server, Bystander(server):
        books = Books(server, monkeypatch)
        async with server.socket() as socket:
            await socket.hello()
            messages = [{"role": "user", "content": PROMPT}]
            await socket.send("chat", id="q", messages=messages, on_disconnect="abandon")
            await books.until_running(1)
        await books.check(FinishType.CLIENT_GONE, 1)


@pytest.mark.parametrize("cause", ["cancel", "deadline", "shutdown"])
async def test_a_run(cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(ENDLESS) as server, Bystander(server):
        books = Books(server, monkeypatch)
        async with server.socket() as socket:
            await socket.hello()
            options: dict[str, Any] = {"timeout": 0.3} if cause == "deadline" else {}
            await socket.ask("x" * 960, **options)
            if cause != "deadline":
                await books.until_running(1)
            if cause == "cancel":
                run = next(event["run"] for event in await socket.until("delta") if "run" in event)
                await socket.send("cancel", run=run)
            elif cause == "shutdown":
                await server.service.shutdown(0)
            events = await socket.answer()
            detail = "cancelled" if cause == "cancel" else cause
            assert events[-1]["finish_detail"] == {"type": detail}
            assert events[-1]["finish_reason"] == "abort"
        await books.check(FinishType(detail), 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_deadline_that_passes_before_the_engine_has_the_request(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts from the arrival: a tokenizer that takes longer leaves nothing to do."""
    async with serving(ENDLESS) as server, Bystander(server):
        books = Books(server, monkeypatch)
        held = threading.Event()
        encode = server.engine.tokenizer.encode

        def slow_encode(text: str, **options: bool) -> list[int]:
            if PROMPT in text:
                held.wait(5)
            return encode(text, **options)

        monkeypatch.setattr(server.engine.tokenizer, "encode", slow_encode)
        for route, n in (("chat", 2), ("text", 2), ("response", 1)):
            body = request_body(route, stream=stream, n=n, timeout=0.05)
            headers = {"connection": "close"}
            reply = await server.http.post(ROUTES[route], json=body, headers=headers)
            assert reply.status_code == 200, reply.text
            assert reply.text.count('"deadline"') == n
            _check_reply(route, reply.text, stream, n)
        held.set()
        assert books.submitted == []
        await books.check(FinishType.DEADLINE, 5)


USER = UserId("somebody")


class _Interleaving:
    """One run of ABT-04: an answer of a few tokens, which things happen to at random moments."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._dice = Random(seed)
        self._num_tokens = self._dice.randrange(1, 8)
        self.answer = "ab" * self._num_tokens
        # Every third prompt takes several steps, so that a cancel meets its prefill.
        filler = "x" * (1400 if seed % 3 == 0 else 3)
        self._messages = [ChatMessage("user", f"{filler}{seed} say {self._num_tokens}")]

    async def play(self) -> str:
        """How the run ended, by its detail."""
        server, dice = self._server, self._dice
        run = server.service.runs.open(USER, self._produce)
        things = [self._read(run, dice.randrange(3)) for _ in range(dice.randrange(1, 4))]
        things += [self._glance(run) for _ in range(dice.randrange(3))]
        things += [self._cancel(run) for _ in range(dice.randrange(3))]
        async with asyncio.timeout(10):
            await asyncio.gather(*things)
            await eventually(lambda: run.is_finished)
        events = [json.loads(event.data) for event in run.read(0)]
        assert [event["type"] for event in events if event["type"] in ("finish", "error")] == [
            events[-1]["type"]
        ]
        detail = str(events[-1]["finish_detail"]["type"])
        if detail == "eos":
            assert run.text == self.answer
        else:
            assert self.answer.startswith(run.text)
        return detail

    async def _produce(self, run: Run) -> None:
        generation = self._server.service.generation
        prompt = await generation.prepare_chat(self._messages)
        completion = await generation.relay(run, prompt, GenerationOptions(), salt="")
        generation.finish_run(run, completion, can_continue=False)

    async def _moment(self) -> None:
        """From nothing to a few steps."""
        if self._dice.random() < 0.5:
            for _ in range(self._dice.randrange(20)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(self._dice.random() * 0.02)

    async def _cancel(self, run: Run) -> None:
        await self._moment()
        run.cancel()
        self._server.engine.abort(RequestId(run.id))
        self._server.engine.abort(RequestId("never-seen"))

    async def _read(self, run: Run, after_seq: int) -> None:
        """Somebody who comes at some time and stays."""
        await self._moment()
        found = [event async for event in run.events(after_seq)]
        if after_seq >= run.last_seq:
            assert run.is_finished
            return
        assert [event.type in ("finish", "error") for event in found] == [
            *[False] * (len(found) - 1),
            True,
        ]
        numbers = [event.seq for event in found]
        assert numbers == sorted(set(numbers))

    async def _glance(self, run: Run) -> None:
        """Somebody who leaves before the end."""
        await self._moment()
        async for _ in run.events():
            break


def _say(prompt: str) -> str:
    return "ab" * int(prompt.rpartition(" say ")[2].split("<")[0])


async def test_200_interleavings_of_cancels_ends_and_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ABT-04."""
    assert case("ABT-04")["expect"]["end_events_per_request"] == 1
    limits = ServiceLimits(max_runs_per_user=100)
    script = Script(answer=_say, token_s=0.001, token_chars=2)
    async with serving(script, limits=limits, max_num_seqs=6) as server:
        books = Books(server, monkeypatch)
        details: list[str] = []
        for first in range(0, 200, 10):
            runs = [_Interleaving(server, seed) for seed in range(first, first + 10)]
            details += await asyncio.gather(*[run.play() for run in runs])
        await server.until_idle()
        assert server.engine.stats.used_blocks == 0
        assert set(books.terminals) == set(books.submitted)
        assert all(len(terminals) == 1 for terminals in books.terminals.values())
        assert server.service.admission.rates.num_accounts == 0
        assert set(details) == {"eos", "cancelled"}
        assert min(details.count(detail) for detail in set(details)) > 40
        assert (await server.chat("x say 2")).json()["choices"][0]["message"]["content"] == "abab"


async def test_clients_that_leave_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the body is read, the prompt tokenized, the request queued, the reply sent."""
    script = Script(answer=_say, token_s=0.001, token_chars=2)
    async with serving(script, max_num_seqs=6) as server:
        books = Books(server, monkeypatch)
        dice = Random(4)

        async def come_and_leave(number: int) -> None:
            messages = [{"role": "user", "content": f"{number} say {dice.randrange(1, 8)}"}]
            body = {"messages": messages, "stream": number % 2 == 0, "n": 1 + number % 3}
            connection = await raw_request(server, ROUTES["chat"], body)
            await asyncio.sleep(dice.random() * 0.03)
            connection.close()

        for first in range(0, 200, 10):
            await asyncio.gather(*[come_and_leave(first + number) for number in range(10)])
        await server.until_idle()
        await eventually(lambda: set(books.terminals) == set(books.submitted))
        assert all(len(terminals) == 1 for terminals in books.terminals.values())
        await eventually(lambda: not books.tasks_left())
        assert server.engine.stats.used_blocks == 0
        assert server.service.admission.rates.num_accounts == 0
        ended = books.newly_finished()
        assert sum(ended.values()) == len(books.submitted)
        assert set(ended) == {"eos", "client_gone"}
