"""A continuation that is taken back, and what the answer is then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from engine.api import EngineConfig, create_engine
from server.service.errors import BadRequestError, ConversationBusyError, NotFoundError
from server.service.messages import Continue, Undo
from server.service.options import GenerationOptions
from server.store.messages import Messages
from tests.server.app.asgi_socket import socket_of
from tests.server.app.site import ALICE, BOB, Site, events_of, kill, new_key, open_site
from tests.server.app.test_continuing import BYTES, SLOW, TEXT, in_bytes, wait_for_deltas
from tests.server.app.test_thinking import ANSWER, THOUGHT, thinking_site
from tests.support.tiny_models import build_tiny_model

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

# Changes with every undo, and is no part of what is restored.
BESIDE = ("updated_at", "notices")


async def undo(site: Site, message: str, *, id: str | None = None) -> dict[str, Any]:
    """Takes back the last continuation of Alice's answer; the answer as the page gets it."""
    done = await site.app.chat.undo(ALICE, Undo(id=id or new_key(), message=message))
    assert list(done) == ["message"]
    found: dict[str, Any] = done["message"]
    assert found == await site.stored(message), "told as the history tells it"
    return found


def restored(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name not in BESIDE}


async def tokens_of(site: Site, message: str) -> tuple[int, ...]:
    row = await site.app.messages.get(ALICE, message, with_tokens=True)
    assert row is not None
    return row.token_ids or ()


@pytest.mark.parametrize("step", [4, 5, 6])
async def test_an_undo_restores_the_cut_answer_and_continue_makes_the_same_again(
    tmp_path: Path, step: int
) -> None:
    """One token a byte: two of these cuts fall inside a character."""
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=step))["accepted"][0]["message"]
        cut, cut_tokens = await site.stored(message), await tokens_of(site, message)
        assert len(cut_tokens) == step
        assert not cut["can_undo"]
        finish = (await site.go_on(message, max_tokens=9))["finish"][0]
        longer, longer_tokens = await site.stored(message), await tokens_of(site, message)
        assert finish["can_undo"]
        assert longer["can_undo"]
        assert longer["text"] != cut["text"]
        assert longer["max_tokens"] == finish["max_tokens"] == 9

        undone = await undo(site, message)
        assert restored(undone) == restored(cut)
        assert undone["updated_at"] > longer["updated_at"]
        assert [notice["kind"] for notice in undone["notices"]] == [
            "answer_cut",
            "continuation_undone",
        ]
        assert await tokens_of(site, message) == cut_tokens

        again = await site.go_on(message, max_tokens=9)
        # A page that has not heard of the undo still shows the longer text.
        assert again["start"][0]["base_chars"] == len(cut["text"])
        assert cut["text"] + again["text"][0]["text"] == longer["text"]
        assert await tokens_of(site, message) == longer_tokens
        redone = await site.stored(message)
        # The same but for how long it took, and what the cache had.
        for name in ("text", "seams", "finish_detail", "max_tokens", "options", "citations"):
            assert redone[name] == longer[name], name
        while redone["can_continue"]:
            await site.go_on(message)
            redone = await site.stored(message)
        assert redone["text"] == TEXT
        assert len(await tokens_of(site, message)) in (len(BYTES), len(BYTES) + 1)


async def test_a_real_model_goes_on_from_the_same_tokens_through_its_cache(
    tmp_path: Path,
) -> None:
    """Greedy, with half characters at nearly every seam: the tiny model's words are bytes."""
    folder = build_tiny_model(tmp_path / "model", "llama")
    config = json.loads((folder / "config.json").read_text())
    config["max_position_embeddings"] = 2048
    (folder / "config.json").write_text(json.dumps(config))
    engine = create_engine(EngineConfig(folder, dtype="float32", kv_cache_tokens=4096))
    async with open_site(tmp_path / "data", engine=engine) as site:
        message = (await site.answer(max_tokens=7))["accepted"][0]["message"]
        cut, cut_tokens = await site.stored(message), await tokens_of(site, message)
        assert cut["finish_detail"] == {"type": "max_tokens"}
        await site.go_on(message, max_tokens=9)
        longer, longer_tokens = await site.stored(message), await tokens_of(site, message)
        assert len(longer_tokens) > len(cut_tokens) == 7
        assert restored(await undo(site, message)) == restored(cut)
        assert await tokens_of(site, message) == cut_tokens
        again = await site.go_on(message, max_tokens=9)
        assert cut["text"] + again["text"][0]["text"] == longer["text"]
        assert await tokens_of(site, message) == longer_tokens
        assert again["finish"][0]["usage"]["parts"][1]["prompt_cache_hit_tokens"] > 0


async def test_each_undo_takes_back_one_continuation(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=3))["accepted"][0]["message"]
        states = [await site.stored(message)]
        for limit in (4, 5, 6):
            await site.go_on(message, max_tokens=limit)
            states.append(await site.stored(message))
        assert [state["max_tokens"] for state in states] == [3, 4, 5, 6]
        assert [part["max_tokens"] for part in states[-1]["usage"]["parts"]] == [3, 4, 5, 6]
        for state in states[-2::-1]:
            assert restored(await undo(site, message)) == restored(state)
        with pytest.raises(BadRequestError, match="no continuation"):
            await undo(site, message)


async def test_a_stopped_continuation_is_taken_back_whole(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes, script=SLOW) as site:
        run = await site.app.chat.ask(ALICE, site.ask())
        await wait_for_deltas(run, 4)
        run.cancel()
        await events_of(run)
        assert run.message is not None
        cut = await site.stored(run.message)
        assert cut["state"] == "stopped"
        more = await site.app.chat.continue_(ALICE, Continue(id="more", message=run.message))
        await wait_for_deltas(more, 3)
        with pytest.raises(ConversationBusyError):
            await undo(site, run.message)
        more.cancel()
        await events_of(more)
        assert (await site.stored(run.message))["finish_detail"] == {"type": "cancelled"}
        assert restored(await undo(site, run.message)) == restored(cut)


async def test_a_repeated_undo_takes_back_nothing_more(tmp_path: Path) -> None:
    """The page sends it again when it has not heard of it before its connection broke."""
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=3))["accepted"][0]["message"]
        await site.go_on(message, max_tokens=3)
        once = await site.stored(message)
        await site.go_on(message, max_tokens=3)
        async with socket_of(site, site.session(ALICE)) as socket:
            for _ in range(2):
                await socket.send("undo", id="u1", message=message)
                done = await socket.until("done", "error")
                assert (done["type"], done["id"]) == ("done", "u1")
                assert restored(done["message"]) == restored(once)
            await socket.send("undo", id="u2", message=message)
            assert (await socket.until("done"))["message"]["seams"] == []
            await socket.send("undo", id="u3", message=message)
            error = await socket.until("done", "error")
            assert (error["id"], error["code"], error["param"]) == ("u3", "bad_request", "message")


async def test_citations_and_marks_are_those_of_before(tmp_path: Path) -> None:
    answer = "The office hours of the lab are on Tuesday [1]. Late reports lose ten percent [1]."
    async with open_site(tmp_path, lambda _: answer, script={"token_chars": 1}) as site:
        message = (await site.answer(max_tokens=46))["accepted"][0]["message"]
        cut = await site.stored(message)
        assert cut["citations"]
        await site.go_on(message)
        whole = await site.stored(message)
        assert len(whole["citations"]) > len(cut["citations"])
        assert whole["passages"] != cut["passages"]
        assert restored(await undo(site, message)) == restored(cut)


async def test_a_killed_server_leaves_a_continuation_that_can_be_undone(tmp_path: Path) -> None:
    async with open_site(tmp_path / "a", in_bytes, script=SLOW) as site:
        message = (await site.answer(max_tokens=7))["accepted"][0]["message"]
        cut = await site.stored(message)
        options = GenerationOptions(max_tokens=200)
        more = Continue(id="more", message=message, options=options)
        run = await site.app.chat.continue_(ALICE, more)
        await wait_for_deltas(run, 4)
        await site.app.drafts.save()
        left = kill(tmp_path / "a", tmp_path / "b")
        run.cancel()
        await events_of(run)
    async with open_site(left, in_bytes) as site:
        stored = await site.stored(message)
        assert (stored["state"], stored["can_undo"]) == ("interrupted", True)
        assert len(stored["text"]) > len(cut["text"])
        assert restored(await undo(site, message)) == restored(cut)
        await site.go_on(message, max_tokens=200)
        assert (await site.stored(message))["text"] == TEXT


async def test_what_was_thought_in_a_continuation_goes_with_it(tmp_path: Path) -> None:
    async with thinking_site(tmp_path) as site:
        message = (await site.answer(max_tokens=12))["accepted"][0]["message"]
        cut = await site.stored(message)
        assert cut["thinking"] == "Labs"
        await site.go_on(message, max_tokens=30)
        assert (await site.stored(message))["text"]
        undone = await undo(site, message)
        assert restored(undone) == restored(cut)
        assert undone["finish_detail"] == {"type": "max_tokens", "in": "reasoning"}
        await site.go_on(message, max_tokens=200)
        whole = await site.stored(message)
        assert (whole["thinking"], whole["text"]) == (THOUGHT, ANSWER)


async def test_later_questions_keep_what_the_model_saw(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes) as site:
        accepted = (await site.answer(max_tokens=3))["accepted"][0]
        await site.go_on(accepted["message"], max_tokens=200)
        later = await site.answer("And then?", conversation=accepted["conversation"])
        before = await site.stored(later["accepted"][0]["message"])
        assert f"assistant\n{TEXT}<|im_end|>" in site.prompts[-1]
        await undo(site, accepted["message"])
        assert await site.stored(later["accepted"][0]["message"]) == before
        await site.answer("And now?", conversation=accepted["conversation"])
        assert f"assistant\n{TEXT[:3]}<|im_end|>" in site.prompts[-1]


async def test_an_end_that_could_not_be_stored_is_stored_before_the_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database took nothing while the continuation ended. Stored afterwards, that end would
    bring the text back."""
    async with open_site(tmp_path, in_bytes) as site:
        site.app.drafts._interval_s = 60.0
        message = (await site.answer(max_tokens=3))["accepted"][0]["message"]
        cut = await site.stored(message)
        stores = Messages.finish

        async def fail(*_: object) -> None:
            raise OperationalError("UPDATE", None, Exception("disk full"))

        monkeypatch.setattr(Messages, "finish", fail)
        assert "error" in await site.go_on(message, max_tokens=5)
        monkeypatch.setattr(Messages, "finish", stores)
        assert restored(await undo(site, message)) == restored(cut)
        await site.app.drafts.store_ends()
        assert restored(await site.stored(message)) == restored(cut)


async def test_a_continue_that_read_the_answer_before_the_undo_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go on behind tokens that are no more there."""
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=3))["accepted"][0]["message"]
        await site.go_on(message, max_tokens=3)
        reopen = Messages.reopen

        async def after_an_undo(self: Messages, *args: Any, **options: Any) -> None:
            await self.undo(message, key="between")
            await reopen(self, *args, **options)

        monkeypatch.setattr(Messages, "reopen", after_an_undo)
        (error,) = (await site.go_on(message, max_tokens=3))["error"]
        assert (error["code"], error["retryable"]) == ("conversation_busy", True)
        assert (await site.stored(message))["text"] == TEXT[:3]


async def test_only_who_asked_may_undo(tmp_path: Path) -> None:
    async with open_site(tmp_path, in_bytes) as site:
        message = (await site.answer(max_tokens=3))["accepted"][0]["message"]
        await site.go_on(message, max_tokens=3)
        before = await site.stored(message)
        with pytest.raises(NotFoundError):
            await site.app.chat.undo(BOB, Undo(id="u", message=message))
        assert await site.stored(message) == before


async def test_feedback_is_acknowledged_when_it_is_stored(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        message = (await site.answer())["accepted"][0]["message"]
        async with socket_of(site, site.session(ALICE)) as socket:
            await socket.send("feedback", id="f1", message=message, value="up")
            assert await socket.until("done", "error") == {"type": "done", "id": "f1"}
            assert (await site.stored(message))["feedback"] == {"value": "up", "note": None}
            await socket.send("feedback", id="f2", message="unknown", value="up")
            error = await socket.until("done", "error")
            assert (error["id"], error["code"]) == ("f2", "not_found")
