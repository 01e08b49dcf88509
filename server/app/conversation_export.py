"""`to_markdown`: a conversation to read elsewhere, with how each answer ended and its sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from server.app.citations import UNSOURCED, with_numbers, without_unknown
from server.app.record_words import finish_words, locator_words, word
from server.app.records import notices
from server.store.schema import Conversation, Feedback, Message, MessagePassage, MessageState


def to_markdown(
    conversation: Conversation,
    course: str | None,
    messages: Sequence[Message],
    passages: Mapping[str, Sequence[MessagePassage]],
    feedback: Mapping[str, Feedback],
    *,
    language: str,
    zone: ZoneInfo,
) -> str:
    """Every message, branches included, in order of making; of an edited question or an answer
    that was made again it is told which version it is. Times are of the `zone`."""
    blocks = [f"# {_line(conversation.title)}"]
    since, until = (_time(at, zone) for at in (conversation.created_at, conversation.updated_at))
    values = {"course": _line(course or "–"), "from": since, "to": until}
    blocks.append(word(language, "export.about", **values))
    texts = {message.id: message.text for message in messages}
    versions = _versions(messages)
    for message in messages:
        numbers = versions[message.parent_id, message.role]
        blocks.append(f"## {_heading(message, numbers, language)}")
        if message.role == "assistant":
            shown = passages.get(message.id, ())
            question = texts.get(message.parent_id or "", "")
            blocks += _answer(message, question, shown, feedback.get(message.id), language)
        elif message.role == "summary":
            blocks += [message.text, f"*{_ended(message, language)}*"]
        else:
            # A question is text, whatever signs are in it.
            blocks.append("\n".join(f"> {line}".rstrip() for line in message.text.split("\n")))
    return "\n\n".join(block for block in blocks if block.strip()) + "\n"


def _answer(
    answer: Message,
    question: str,
    passages: Sequence[MessagePassage],
    feedback: Feedback | None,
    language: str,
) -> Iterator[str]:
    say = partial(word, language)
    known = {passage.n for passage in passages if passage.used}
    texts = [question, *(passage.text for passage in passages)]
    citations = answer.citations or ()
    text = with_numbers(answer.text, citations, known, unsourced=UNSOURCED)
    yield without_unknown(text, known, texts).strip() or f"*{say('record.noAnswer')}*"
    told = [say("record.unsourced")] if text != with_numbers(answer.text, citations, known) else []
    told.append(_ended(answer, language))
    told += [say("export.model", model=answer.model)] if answer.model else []
    told += [notice[language] for notice in notices(answer)]
    yield "\n".join(f"*{_line(line)}*  " for line in told).rstrip()
    if passages:
        yield f"### {say('record.sources')}"
        yield "\n".join(_source(passage, answer.not_found, language) for passage in passages)
    if feedback is not None:
        note = f": {_line(feedback.note)}" if feedback.note else ""
        yield f"*{say('record.feedback')}: {say(f'record.{feedback.value}')}{note}*"


def _source(passage: MessagePassage, not_found: bool, language: str) -> str:
    where = locator_words(language, passage)
    line = f"- [{passage.n}] {_line(passage.title)}" + (f" – {_line(where)}" if where else "")
    if passage.used and not passage.is_cited:
        return line
    key = "record.cited" if passage.used else "record.leftOut"
    if not_found:
        key = "record.nearest"
    return f"{line} ({word(language, key)})"


def _ended(message: Message, language: str) -> str:
    if message.state == MessageState.RUNNING:
        return word(language, "export.running")
    return word(language, "export.ended", finish=finish_words(language, message))


def _versions(messages: Sequence[Message]) -> dict[tuple[str | None, str], dict[str, int]]:
    """By parent and role: the messages that stand in each other's place, by id, counted from 1."""
    versions: dict[tuple[str | None, str], dict[str, int]] = defaultdict(dict)
    for message in messages:
        numbers = versions[message.parent_id, message.role]
        numbers[message.id] = len(numbers) + 1
    return versions


def _heading(message: Message, numbers: Mapping[str, int], language: str) -> str:
    """`numbers`: of the message and all other versions of it."""
    keys = {"user": "record.question", "assistant": "record.answer", "summary": "export.summary"}
    heading = word(language, keys[message.role])
    if len(numbers) < 2:
        return heading
    n = numbers[message.id]
    return f"{heading} ({word(language, 'export.version', n=n, total=len(numbers))})"


def _line(text: str) -> str:
    return " ".join(text.split())


def _time(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")
