"""One answer from its question to its stored end: passages, prompt, generation, record.

Whatever happens, the answer's row leaves `running`: it ends by what the engine says, or, when
something raises on the way, as `error` or `interrupted` with the text so far. Where the database
does not take that end, `Drafts` keeps it until it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from engine.api import Usage
from server.app.answer_ends import closing
from server.app.answer_parts import (
    add_timing,
    add_usage,
    part_timing,
    timing_before,
    usage_before,
)
from server.app.budget import ContextReport
from server.app.citations import compared, marks_of
from server.app.context import assemble
from server.app.drafts import Draft, Drafts
from server.app.found_passages import Found, FoundPassage, Retriever
from server.app.history import history, nothing_seen, seen_from, summary_of
from server.app.prompts import language_of, not_found_text
from server.app.records import (
    NO_TIMING,
    NOT_FOUND_DETAIL,
    has_no_support,
    is_continuable,
    passage_json,
    state_of,
)
from server.app.retrieval import Previous, Viewer
from server.app.support import SourceText
from server.service.auth import UserId
from server.service.generation import Completion, Generation, GenerationOptions, Prompt
from server.service.runs import Run
from server.service.usage import usage_json
from server.store.messages import Messages, Opened, Outcome, PassageSnapshot, Prepared
from server.store.records import WHOLE_TYPES
from server.store.schema import Message, MessageState


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that is stored, with all that its answer needs."""

    user: UserId
    opened: Opened
    course_id: str
    question: str
    options: GenerationOptions


class _Source(SourceText, Protocol):
    @property
    def passage_id(self) -> str: ...
    @property
    def used(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Sources:
    """What an answer is compared with."""

    question: str
    passages: Sequence[_Source]

    @property
    def used(self) -> list[_Source]:
        """The passages that the model was given."""
        return [passage for passage in self.passages if passage.used]


class Answering:
    """Makes answers on behalf of runs. Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        messages: Messages,
        drafts: Drafts,
        generation: Generation,
        retriever: Retriever,
        *,
        num_passages: int,
    ) -> None:
        self._messages = messages
        self._drafts = drafts
        self._generation = generation
        self._retriever = retriever
        self._num_passages = num_passages

    async def settle(self) -> None:
        """Stores the ends of answers that could not be stored before, so that their rows tell
        the truth. Raises SQLAlchemyError."""
        await self._drafts.store_ends()

    async def answer(self, run: Run, asked: Asked) -> None:
        """Answers a question and ends the run."""
        answer_id = asked.opened.answer_id
        async with closing(self._drafts, answer_id) as draft:
            # Before anything reads it: a megabyte of text is cheap to refuse only by its size.
            self._generation.check_size(asked.question, param="text")
            path = await self._messages.path(asked.opened.question_id)
            turns = history(path[:-1])
            found = await self._retrieve(run, asked, await self._previous(path[:-1]))
            language = language_of(asked.question)
            window = self._generation.model.window
            # Also where nothing was found: a question that is too long is told as such, always.
            assembled = await assemble(
                self._generation,
                language=language,
                passages=found.passages if found.is_found else (),
                turns=turns if found.is_found else (),
                question=found.found_question or asked.question,
                window=window,
                max_tokens=asked.options.max_tokens or window,
                summary=summary_of(path) if found.is_found else None,
            )
            if not found.is_found:
                report = nothing_seen(window, assembled.report.question, len(turns))
                await self._prepare(run, asked, found, None, report)
                text = not_found_text(language, has_passages=bool(found.passages))
                await self._answer_not_found(run, draft, text)
                return
            report = seen_from(assembled.report, path, turns, asked.opened.question_id)
            snapshots = await self._prepare(run, asked, found, assembled.prompt, report)
            completion = await self._generation.relay(
                run,
                assembled.prompt,
                asked.options,
                salt=f"course:{asked.course_id}",
                on_output=draft.add,
                may_continue=True,
                splits_reasoning=True,
            )
            sources = _Sources(asked.question, snapshots)
            context = _context(report, found)
            await self._finish(run, draft, completion, None, context, sources)

    async def extend(
        self,
        run: Run,
        answer: Message,
        question: str,
        course_id: str | None,
        options: GenerationOptions,
    ) -> None:
        """Goes on with a stored, cut answer (read with its tokens, then reopened) to `question`
        from its last token: the engine is given the very prompt and tokens of before. Ends the
        run."""
        async with closing(self._drafts, answer.id, answer) as draft:
            stored = await self._messages.passages([answer.id])
            sources = _Sources(question, stored[answer.id])
            # What the window of today is, whatever it was then.
            context = {**(answer.context or {}), "window": self._generation.model.window}
            prompt = await self._generation.prompts.continuation(
                answer.prompt_token_ids or (), answer.token_ids or (), draft.num_told
            )
            completion = await self._generation.relay(
                run,
                prompt,
                options,
                salt=f"course:{course_id}",
                on_output=draft.add,
                may_continue=True,
                # Behind the first word of the answer itself there is no thinking.
                splits_reasoning=not answer.text,
                # A reader may hold more than this, or less: what another run wrote or took back.
                more_start=base_fields(len(answer.text), len(answer.thinking or "")),
            )
            await self._finish(run, draft, completion, answer, context, sources)

    async def _previous(self, path: Sequence[Message]) -> Previous | None:
        """The question before, and the materials that it was answered from."""
        if len(path) < 2:
            return None
        question, answer = path[-2:]
        stored = await self._messages.passages([answer.id])
        used = (passage.material_id for passage in stored[answer.id] if passage.used)
        return Previous(question.text, tuple(dict.fromkeys(used)))

    async def _prepare(
        self,
        run: Run,
        asked: Asked,
        found: Found,
        prompt: Prompt | None,
        report: ContextReport,
    ) -> tuple[PassageSnapshot, ...]:
        snapshots = _snapshots(found.passages, report.passages_used)
        await self._messages.prepare(
            asked.opened.answer_id,
            Prepared(
                prompt_token_ids=prompt.token_ids if prompt else None,
                context=_context(report, found),
                passages=snapshots,
                options=msgspec.to_builtins(asked.options),
                model=self._generation.model.name,
                not_found=prompt is None,
            ),
        )
        run.emit(
            "retrieval",
            passages=[passage_json(snapshot) for snapshot in snapshots],
            dropped=report.passages_dropped,
            not_found=prompt is None,
            not_found_parts=list(found.missing_parts),
        )
        run.emit("context", **report.to_json())
        return snapshots

    async def _retrieve(self, run: Run, asked: Asked, previous: Previous | None) -> Found:
        """The passages for a question. Who cancels does not wait for what the model thinks of
        them."""
        retrieve = partial(
            self._retriever.retrieve,
            asked.course_id,
            asked.question,
            previous=previous,
            # Also who teaches the course gets the answer that its students get.
            viewer=Viewer(asked.user),
            limit=self._num_passages,
        )
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as patience:
                with run.cancelling(lambda _: patience.reschedule(loop.time())):
                    return await retrieve()
        except TimeoutError:
            if not patience.expired():
                raise
            return await retrieve(asks_judge=False)

    async def _answer_not_found(self, run: Run, draft: Draft, text: str) -> None:
        usage = usage_json(Usage())
        timing = {**NO_TIMING, "total_ms": 0.0}
        await self._drafts.finish(
            draft,
            Outcome(
                MessageState.FINISHED,
                "stop",
                NOT_FOUND_DETAIL,
                text,
                (),
                usage=usage,
                timing=timing,
            ),
        )
        run.emit("delta", text=text)
        run.emit(
            "finish",
            finish_reason="stop",
            finish_detail=NOT_FOUND_DETAIL,
            usage=usage,
            timing=timing,
            can_continue=False,
            no_support=False,
        )

    async def _finish(
        self,
        run: Run,
        draft: Draft,
        completion: Completion,
        earlier: Message | None,
        context: dict[str, Any],
        sources: _Sources,
    ) -> None:
        """Stores the end, then tells it. `earlier`: the answer as it was before this part;
        `context`: its report."""
        finish = completion.finish
        usage = add_usage(usage_before(earlier), self._part_usage(completion))
        timing = add_timing(timing_before(earlier), part_timing(completion))
        window, window_used = context["window"], usage["total_tokens"]
        detail = completion.detail
        if finish.message is not None:
            detail = {**detail, "message": finish.message}
        used = sources.used
        is_whole = finish.detail.type in WHOLE_TYPES
        # In a thread: a long answer takes tens of milliseconds.
        found = await asyncio.to_thread(compared, draft.text, sources.question, used, is_whole)
        citations = None if found is None else [citation.to_json() for citation in found]
        await self._drafts.finish(
            draft,
            Outcome(
                state_of(finish.detail.type),
                finish.reason.value,
                detail,
                draft.text,
                draft.token_ids,
                usage,
                timing,
                completion.max_tokens,
                draft.thinking,
                draft.num_told,
                context={**context, "window_used": window_used},
                is_compared=True,
                citations=citations,
                marks=marks_of(found or ()),
            ),
        )
        tell_citations(run, citations or (), {passage.n: passage.passage_id for passage in used})
        self._generation.finish_run(
            run,
            completion,
            can_continue=is_continuable(
                finish.detail.type, draft.text or draft.thinking or "", usage, window
            ),
            usage=usage,
            timing=timing,
            more={
                "no_support": has_no_support(finish.detail.type, draft.text, citations),
                "max_tokens": completion.max_tokens,
                "window_used": window_used,
                "can_undo": earlier is not None,
            },
        )

    def _part_usage(self, completion: Completion) -> dict[str, Any]:
        """What a part of an answer used, and what it was allowed."""
        told = usage_json(
            completion.finish.usage,
            prices=self._generation.prices,
            reasoning_tokens=completion.reasoning_tokens or None,
        )
        return {**told, "max_tokens": completion.max_tokens}


def _context(report: ContextReport, found: Found) -> dict[str, Any]:
    """The report as it is stored: with the parts of the question that the model was not asked."""
    missing = list(found.missing_parts)
    return {**report.to_json(), **({"not_found_parts": missing} if missing else {})}


def base_fields(num_chars: int, num_thinking: int) -> dict[str, int]:
    """What `start` tells of an answer that is there already: behind how many characters (code
    points) of its text and of its thinking the run goes on."""
    return {"base_chars": num_chars, "base_thinking_chars": num_thinking}


def tell_citations(
    run: Run, citations: Sequence[Mapping[str, Any]], passage_ids: Mapping[int, str]
) -> None:
    """Tells the stored citations of an answer, all of whose text is told."""
    for citation in citations:
        run.emit("citation", passage=passage_ids.get(citation["n"]), **citation)


def _snapshots(passages: Sequence[FoundPassage], num_used: int) -> tuple[PassageSnapshot, ...]:
    return tuple(
        PassageSnapshot(
            n,
            passage.id,
            passage.material_id,
            passage.title,
            passage.locator,
            passage.text,
            passage.score,
            passage.num_tokens,
            used=n <= num_used,
            place=passage.place.fields() or None,
        )
        for n, passage in enumerate(passages, 1)
    )
