"""From passages, history and question to the prompt that fits, and the report of what did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from server.app.budget import ContextReport, PromptSizes, QuestionTooLongError, fit, report, reserve
from server.app.prompts import Language, PassageText, Turn, build_messages, render_passage
from server.service.errors import PromptTooLongError
from server.service.generation import Generation, Prompt


@dataclass(frozen=True, slots=True)
class Assembled:
    """A prompt that leaves room for the answer, and the report of what it holds."""

    prompt: Prompt
    report: ContextReport


async def assemble(
    generation: Generation,
    *,
    language: Language,
    passages: Sequence[PassageText],
    turns: Sequence[Turn],
    question: str,
    window: int,
    max_tokens: int,
    summary: Turn | None = None,
) -> Assembled:
    """The fullest prompt that fits `window` with room for the answer; `passages` best first,
    `turns` oldest first, and `summary` in front of them: what an earlier conversation was about.
    Raises PromptTooLongError when the question alone does not fit."""
    sizes = await _measure(generation, language, passages, turns, question, window, max_tokens)
    if summary is not None:
        sizes = replace(sizes, summary=await _measure_summary(generation, language, summary))
    while True:
        try:
            selection = fit(sizes)
        except QuestionTooLongError as error:
            raise _told(error, window) from None
        before = [summary] if summary is not None and selection.has_summary else []
        messages = build_messages(
            language,
            passages[: selection.passages_used],
            [*before, *turns[len(turns) - selection.turns_kept :]],
            question,
        )
        prompt = await generation.prepare_chat(messages)
        context = report(sizes, selection, prompt.num_tokens)
        if prompt.num_tokens + sizes.reserved <= window:
            return Assembled(prompt, context)
        # The parts, counted alone, came to less than the whole: by as much as `system` grew.
        # Every round gives up at least one more part, or finds that the question is too long.
        sizes = sizes.with_slack(context.system - sizes.system)


async def _measure(
    generation: Generation,
    language: Language,
    passages: Sequence[PassageText],
    turns: Sequence[Turn],
    question: str,
    window: int,
    max_tokens: int,
) -> PromptSizes:
    rendered = [render_passage(n, passage) for n, passage in enumerate(passages, 1)]
    spoken = [text for turn in turns for text in (turn.question, turn.answer)]
    counts = await generation.count_tokens([question, *rendered, *spoken])
    num_question, counts = counts[0], counts[1:]
    of_passages, of_spoken = counts[: len(rendered)], counts[len(rendered) :]
    system = await generation.count_chat(build_messages(language, (), (), ""))
    frame = 0
    if turns:
        with_turn = await generation.count_chat(build_messages(language, (), (Turn("x", "x"),), ""))
        (num_x,) = await generation.count_tokens(["x"])
        frame = max(0, with_turn - system - 2 * num_x)
    return PromptSizes(
        window=window,
        reserved=reserve(window, max_tokens),
        system=system,
        question=num_question,
        turns=tuple(
            asked + answered + frame
            for asked, answered in zip(of_spoken[::2], of_spoken[1::2], strict=True)
        ),
        passages=tuple(of_passages),
    )


async def _measure_summary(generation: Generation, language: Language, summary: Turn) -> int:
    without = await generation.count_chat(build_messages(language, (), (), ""))
    return await generation.count_chat(build_messages(language, (), (summary,), "")) - without


def _told(error: QuestionTooLongError, window: int) -> PromptTooLongError:
    told = PromptTooLongError(error.num_tokens, window, param="text")
    told.message = str(error)
    return told
