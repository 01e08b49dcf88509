"""What of a conversation the model sees, and from which question on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from server.app.budget import ContextReport
from server.app.prompts import Turn, language_of, summary_question
from server.store.schema import Message


def history(path: Sequence[Message]) -> list[Turn]:
    """The turns that the model may see, oldest first.

    A cut or stopped answer counts with the text that is shown. Turns without any answer, and
    those whose answer was "not found", are no part of the model's view: they tell it nothing
    about the materials, and a small model repeats them. What a model thought is no part of it
    either."""
    return [
        Turn(question.text, answer.text, question.id)
        for question, answer in pairwise(path)
        if (question.role, answer.role) == ("user", "assistant")
        and answer.text
        and not answer.not_found
    ]


def summary_of(path: Sequence[Message]) -> Turn | None:
    """The summary that a conversation begins with, as a turn in front of its own."""
    first = path[0] if path else None
    if first is None or first.role != "summary" or not first.text:
        return None
    return Turn(summary_question(language_of(first.text)), first.text)


def seen_from(
    report: ContextReport, path: Sequence[Message], turns: Sequence[Turn], question_id: str
) -> ContextReport:
    """The report with the first question of the model's view, and how many before `question_id`,
    on the path down to it, are no part of any: `turns` are the others."""
    first = turns[-report.turns_kept].question_id if report.turns_kept else question_id
    num_before = sum(one.role == "user" and one.id != question_id for one in path)
    return replace(report, view_from=first, turns_skipped=num_before - len(turns))


def nothing_seen(window: int, num_question: int, num_turns: int) -> ContextReport:
    """The report of an answer for which no model was asked: nothing was left out of a prompt."""
    return ContextReport(window, 0, 0, 0, num_question, 0, num_turns, 0, 0, 0)
