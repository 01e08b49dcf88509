"""`Summaries`: what a conversation was about, written by the model for one that goes on elsewhere.

A conversation is carried on when the window is full, so it does not fit the window itself: it is
given in parts of at most half of it, oldest first, and each is summarised together with the
summary so far. Only the last part is told as it is written. Where the model gives nothing, the
questions and how their answers began stand in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from engine.api import FinishReason, Usage
from server.app.answer_ends import closing
from server.app.answer_parts import part_timing
from server.app.drafts import Draft, Drafts
from server.app.history import history, summary_of
from server.app.prompts import Language, Turn, language_of
from server.app.records import state_of
from server.app.summary_prompts import extract, render_turn, summary_messages
from server.service.errors import BadRequestError
from server.service.generation import Completion, Generation, GenerationOptions, Prompt
from server.service.run import Run
from server.service.template_options import TemplateOptions
from server.service.usage import total_usage, usage_json
from server.store.messages import Messages, Outcome
from server.store.schema import Message, MessageState

EXTRACT_DETAIL = {"type": "extract"}
"""Finish detail of a summary that was put together without the model."""
_MOST_PARTS = 8
"""Of a conversation: the oldest turns of a longer one are left out, and counted."""
_CHARS_PER_TOKEN = 4
_PART_EVENTS = 64
"""Events kept of a part that nobody reads."""
_QUIET = TemplateOptions(True, False, {"enable_thinking": False})


@dataclass(frozen=True, slots=True)
class Carried:
    """What of a conversation is to be summarised."""

    turns: Sequence[Turn]
    before: str | None
    """What a summary at its head says."""

    @classmethod
    def of(cls, path: Sequence[Message]) -> Carried:
        """Raises BadRequestError for a conversation that says nothing."""
        turns, summary = history(path), summary_of(path)
        if not turns and summary is None:
            raise BadRequestError("There is nothing to summarise yet.", param="message")
        return cls(turns, summary.answer if summary else None)

    @property
    def language(self) -> Language:
        """The one that was spoken last."""
        return language_of(self.turns[-1].question if self.turns else self.before or "")


class Summaries:
    """Makes summaries on behalf of runs. Owned by the event loop; keeps no state of its own."""

    def __init__(self, messages: Messages, drafts: Drafts, generation: Generation) -> None:
        self._messages = messages
        self._drafts = drafts
        self._generation = generation

    async def write(
        self, run: Run, summary_id: str, carried: Carried, options: GenerationOptions
    ) -> None:
        """Writes the summary of `carried` into a stored, running message, and ends the run."""
        window = self._generation.model.window
        # The next question must have room beside it.
        most = max(1, min(options.max_tokens or window, window // 4))
        options = msgspec.structs.replace(options, max_tokens=most)
        async with closing(self._drafts, summary_id) as draft:
            parts, left_out = await self._parts(carried, window, most)
            before = carried.before
            usages: list[Usage] = []
            sizes = [size for _, size in parts]
            for n, (turns, _) in enumerate(parts[:-1]):
                run.emit("progress", prefilled=sum(sizes[:n]), total=sum(sizes))
                completion = await self._unheard(run, n, carried.language, turns, before, options)
                usages.append(completion.finish.usage)
                before = completion.text.strip() or extract(
                    carried.language, turns, before, 2 * most
                )
                if run.cancel_detail is not None:
                    break
            turns = parts[-1][0]
            prompt = await self._prompt(carried.language, turns, before, most)
            completion = await self._generation.relay(
                run,
                prompt,
                options,
                salt=run.owner,
                on_output=draft.add,
                splits_reasoning=True,
            )
            usages.append(completion.finish.usage)
            is_extract = not draft.text.strip()
            if is_extract:
                text = extract(carried.language, carried.turns, carried.before, 2 * most)
                run.emit("delta", text=text)
                draft.add(text, (), "", 0)
            context = {
                "window": window,
                "turns": len(carried.turns),
                "turns_left_out": left_out,
                "is_extract": is_extract,
            }
            await self._finish(run, draft, completion, usages, context)

    async def _finish(
        self,
        run: Run,
        draft: Draft,
        completion: Completion,
        usages: Sequence[Usage],
        context: dict[str, Any],
    ) -> None:
        """Stores the end, then tells it."""
        finish = completion.finish
        usage = usage_json(
            total_usage(usages, 1),
            prices=self._generation.prices,
            reasoning_tokens=completion.reasoning_tokens or None,
        )
        timing, detail = part_timing(completion), completion.detail
        window_used = finish.usage.prompt_tokens + finish.usage.completion_tokens
        state, reason = state_of(finish.detail.type), finish.reason
        if context["is_extract"]:
            # There is a summary, whatever became of the model's.
            detail, state, reason = EXTRACT_DETAIL, MessageState.FINISHED, FinishReason.STOP
        elif finish.message is not None:
            detail = {**detail, "message": finish.message}
        await self._drafts.finish(
            draft,
            Outcome(
                state,
                reason.value,
                detail,
                draft.text,
                usage=usage,
                timing=timing,
                max_tokens=completion.max_tokens,
                thinking=draft.thinking,
                context={**context, "window_used": window_used},
            ),
        )
        more = {
            "no_support": False,
            "max_tokens": completion.max_tokens,
            "window_used": window_used,
            "can_undo": False,
            "turns_left_out": context["turns_left_out"],
        }
        if context["is_extract"]:
            run.emit(
                "finish",
                finish_reason=reason.value,
                finish_detail=detail,
                usage=usage,
                timing=timing,
                can_continue=False,
                **more,
            )
            return
        self._generation.finish_run(
            run, completion, can_continue=False, usage=usage, timing=timing, more=more
        )

    async def _parts(
        self, carried: Carried, window: int, most: int
    ) -> tuple[list[tuple[list[Turn], int]], int]:
        """The turns in parts, each with its size in tokens, and how many of the oldest are left
        out."""
        bare = await self._generation.count_chat(summary_messages(carried.language, (), "x"))
        # Beside a part stand the summary so far and the one that is being written.
        room = max(1, min(window // 2, window - bare - 2 * most))
        # A text that is far over the window would be refused unread.
        turns = [_cut(turn, _CHARS_PER_TOKEN * window) for turn in carried.turns]
        rendered = [render_turn(carried.language, turn) for turn in turns]
        sizes = await self._generation.count_tokens(rendered)
        parts: list[tuple[list[Turn], int]] = [([], 0)]
        for turn, size in zip(turns, sizes, strict=True):
            part, so_far = parts[-1]
            if part and so_far + size > room:
                parts.append(([turn], size))
            else:
                parts[-1] = ([*part, turn], so_far + size)
        left_out = sum(len(part) for part, _ in parts[:-_MOST_PARTS])
        return parts[-_MOST_PARTS:], left_out

    async def _unheard(
        self,
        run: Run,
        number: int,
        language: Language,
        turns: Sequence[Turn],
        before: str | None,
        options: GenerationOptions,
    ) -> Completion:
        """Summarises one part without telling it. Stops with the run."""
        prompt = await self._prompt(language, turns, before, options.max_tokens or 1)
        inner = Run(f"{run.id}-{number}", run.owner, None, _PART_EVENTS)
        with run.cancelling(inner.cancel):
            return await self._generation.relay(
                inner, prompt, options, salt=run.owner, splits_reasoning=True
            )

    async def _prompt(
        self, language: Language, turns: Sequence[Turn], before: str | None, most: int
    ) -> Prompt:
        """The prompt for one part; where a turn is longer than all the room, its end is cut."""
        room = self._generation.model.window - most
        turns = list(turns)
        while True:
            rendered = [render_turn(language, turn) for turn in turns]
            messages = summary_messages(language, rendered, before)
            prompt = await self._generation.prepare_chat(messages, template=_QUIET)
            if prompt.num_tokens <= room or not (turns or before):
                return prompt
            if turns:
                longest = max(range(len(turns)), key=lambda n: len(rendered[n]))
                turn = _shorter(turns.pop(longest), min(0.8, room / prompt.num_tokens))
                if turn.question or turn.answer:
                    turns.insert(longest, turn)
            else:
                before = (before or "")[: len(before or "") // 2]


def _shorter(turn: Turn, share: float) -> Turn:
    """The answer gives way first."""
    if turn.answer:
        return replace(turn, answer=turn.answer[: int(len(turn.answer) * share)])
    return replace(turn, question=turn.question[: int(len(turn.question) * share)])


def _cut(turn: Turn, num_chars: int) -> Turn:
    return replace(turn, question=turn.question[:num_chars], answer=turn.answer[:num_chars])
