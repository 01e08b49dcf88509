"""`ChatApp`: what a user may do in a conversation. Implements the service's `ConversationApp`.

Each method checks what can be known at once (whose conversation, which message, which options),
opens a run, and leaves the rest to it: the run's task stores the question before it tells the
client `accepted`, so what was acknowledged is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from engine.api import Usage
from server.app.access import Access
from server.app.answering import Answering, Asked, tell_citations
from server.app.records import (
    NO_TIMING,
    can_continue,
    error_fields,
    has_no_support,
    is_answered,
    passage_json,
)
from server.service.auth import UserId, is_account
from server.service.errors import (
    BadRequestError,
    ConversationBusyError,
    NotFoundError,
    UnauthorizedError,
)
from server.service.generation import GenerationOptions
from server.service.limits import ServiceLimits
from server.service.messages import Ask, Continue, Edit, Feedback, Regenerate
from server.service.runs import Run, RunRegistry
from server.service.usage import usage_json
from server.service.validation import refuse_nul
from server.store.conversations import Conversations
from server.store.messages import Messages, Opened, UserGoneError
from server.store.schema import Conversation, Message, MessageState

_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class ChatDefaults:
    """Options of an answer that its client does not name. Courses want exact answers, so they
    are greedy; an answer made again would then be the same, so it is not."""

    max_tokens: int = 512
    temperature: float = 0.0
    regenerate_temperature: float = 0.7


class ChatApp:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        runs: RunRegistry,
        answering: Answering,
        access: Access,
        conversations: Conversations,
        messages: Messages,
        *,
        limits: ServiceLimits,
        defaults: ChatDefaults,
    ) -> None:
        self._runs = runs
        self._answering = answering
        self._access = access
        self._conversations = conversations
        self._messages = messages
        self._limits = limits
        self._defaults = defaults

    async def ask(self, user: UserId, message: Ask) -> Run:
        """Answers a question about a course, in a new conversation or after `parent` (an answer
        of the conversation; None: its latest)."""
        refuse_nul(message.text, "text")
        options = self._options(message.options)
        course_id = await self._course_of(user, message)
        if message.parent is not None:
            await self._check_parent(user, message)

        async def produce(run: Run) -> None:
            opening = partial(
                self._messages.open_question,
                user,
                message.text,
                course_id=course_id,
                conversation_id=message.conversation,
                parent_id=message.parent,
                title=title_of(message.text),
                client_id=message.id,
                is_guest=not is_account(user),
            )
            if opened := await self._open(run, user, message.id, opening):
                await self._answering.answer(
                    run, Asked(user, opened, course_id, message.text, options)
                )

        return self._runs.open(user, produce, key=message.id, conversation=message.conversation)

    async def continue_(self, user: UserId, message: Continue) -> Run:
        """Goes on with a cut answer, token-exactly; its text grows."""
        answer = await self._message(user, message.message)
        conversation = await self._conversation(user, answer.conversation_id)
        course_id = await self._course_id(user, conversation)

        async def produce(run: Run) -> None:
            await self._answering.settle()
            answer = await self._message(user, message.message, with_tokens=True)
            if not can_continue(answer) or not answer.token_ids or not answer.prompt_token_ids:
                raise BadRequestError(
                    "This answer has ended; there is nothing to continue.", param="message"
                )
            options = self._options(_merged(answer.options or {}, message.options))
            question = await self._message(user, answer.parent_id or "")
            await self._messages.reopen(answer.id, seam=len(answer.text))
            _accept(
                run,
                message.id,
                Opened(answer.conversation_id, question.id, answer.id, question.parent_id),
            )
            await self._answering.extend(run, answer, question.text, course_id, options)

        return self._runs.open(user, produce, key=message.id, conversation=conversation.id)

    async def regenerate(self, user: UserId, message: Regenerate) -> Run:
        """Answers a question once more: `message` is the question or one of its answers, and
        the new answer is a sibling of the others."""
        named = await self._message(user, message.message)
        question = named
        if named.role == "assistant":
            question = await self._message(user, named.parent_id or "")
        conversation = await self._conversation(user, named.conversation_id)
        course_id = await self._course_id(user, conversation)
        options = self._options(message.options, temperature=self._defaults.regenerate_temperature)

        async def produce(run: Run) -> None:
            opening = partial(self._messages.open_answer, question.id, client_id=message.id)
            if opened := await self._open(run, user, message.id, opening):
                await self._answering.answer(
                    run, Asked(user, opened, course_id, question.text, options)
                )

        return self._runs.open(user, produce, key=message.id, conversation=conversation.id)

    async def edit(self, user: UserId, message: Edit) -> Run:
        """Asks a changed question in place of an earlier one: a branch beside it."""
        refuse_nul(message.text, "text")
        question = await self._message(user, message.message)
        if question.role != "user":
            raise BadRequestError("Only a question can be edited.", param="message")
        conversation = await self._conversation(user, question.conversation_id)
        course_id = await self._course_id(user, conversation)
        options = self._options(message.options)

        async def produce(run: Run) -> None:
            opening = partial(
                self._messages.open_question,
                user,
                message.text,
                course_id=course_id,
                conversation_id=conversation.id,
                parent_id=question.parent_id,
                follow_latest=False,
                client_id=message.id,
            )
            if opened := await self._open(run, user, message.id, opening):
                await self._answering.answer(
                    run, Asked(user, opened, course_id, message.text, options)
                )

        return self._runs.open(user, produce, key=message.id, conversation=conversation.id)

    async def feedback(self, user: UserId, message: Feedback) -> None:
        """Stores what the user thinks of an answer; `none` takes it back."""
        answer = await self._message(user, message.message)
        if answer.role != "assistant":
            raise BadRequestError("Only an answer can be judged.", param="message")
        value = None if message.value == "none" else message.value
        await self._messages.put_feedback(user, answer.id, value, message.note)

    async def _course_of(self, user: UserId, message: Ask) -> str:
        named = None
        if message.course is not None:
            named = await self._access.member(user, message.course)
        if message.conversation is None:
            return (named or await self._access.first_course(user)).course_id
        conversation = await self._conversation(user, message.conversation)
        course_id = await self._course_id(user, conversation)
        if named is not None and named.course_id != course_id:
            raise BadRequestError("The conversation is about another course.", param="course")
        return course_id

    async def _check_parent(self, user: UserId, message: Ask) -> None:
        parent = await self._message(user, message.parent or "", param="parent")
        if parent.conversation_id != message.conversation:
            raise BadRequestError("parent is of another conversation", param="parent")
        if parent.role != "assistant":
            raise BadRequestError("parent must be an answer", param="parent")

    async def _conversation(self, user: UserId, conversation_id: str) -> Conversation:
        conversation = await self._conversations.get(user, conversation_id)
        if conversation is None:
            raise NotFoundError("There is no such conversation.", param="conversation")
        return conversation

    async def _message(
        self, user: UserId, message_id: str, *, with_tokens: bool = False, param: str = "message"
    ) -> Message:
        message = await self._messages.get(user, message_id, with_tokens=with_tokens)
        if message is None:
            raise NotFoundError("There is no such message.", param=param)
        return message

    async def _course_id(self, user: UserId, conversation: Conversation) -> str:
        """The conversation's course, in which its owner must still be to ask. Raises
        NotFoundError."""
        if conversation.course_id is None:
            raise NotFoundError("The course of this conversation is gone.", param="conversation")
        return (await self._access.member(user, conversation.course_id)).course_id

    def _options(
        self, options: GenerationOptions, *, temperature: float | None = None
    ) -> GenerationOptions:
        """The options with defaults filled in. Raises BadRequestError naming a wrong field."""
        if temperature is None:
            temperature = self._defaults.temperature
        filled = msgspec.structs.replace(
            options,
            max_tokens=_or(options.max_tokens, self._defaults.max_tokens),
            temperature=_or(options.temperature, temperature),
        )
        filled.to_params(self._limits)
        return filled

    async def _open(
        self, run: Run, user: UserId, client_id: str, opening: Callable[[], Awaitable[Opened]]
    ) -> Opened | None:
        """Stores what `opening` stores for a new message, and tells that it is accepted.

        A client may repeat its message after the run's log is gone (after ten minutes, or after
        a restart), or because of an error that it may retry. What was answered is told again,
        which ends the run: None. What was not gets another answer to the same question."""
        await self._answering.settle()
        stored = await self._messages.answer_to_client_id(user, client_id)
        if stored is None:
            try:
                opened = await opening()
            except UserGoneError:
                raise UnauthorizedError("This account was deleted.") from None
        elif is_answered(stored):
            await self._replay(run, user, client_id, stored)
            return None
        else:
            if self._runs.active_in(stored.conversation_id) not in (None, run):
                raise ConversationBusyError("This conversation is still answering.")
            opened = await self._messages.open_answer(stored.parent_id or "", client_id=client_id)
        _accept(run, client_id, opened)
        return opened

    async def _replay(self, run: Run, user: UserId, client_id: str, answer: Message) -> None:
        """Tells a stored answer again, to its end."""
        question = await self._message(user, answer.parent_id or "")
        passages = (await self._messages.passages([answer.id]))[answer.id]
        _accept(
            run,
            client_id,
            Opened(answer.conversation_id, question.id, answer.id, question.parent_id),
        )
        if answer.context is not None:
            run.emit(
                "retrieval",
                passages=[passage_json(passage) for passage in passages],
                dropped=answer.context["passages_dropped"],
                not_found=answer.not_found,
            )
            run.emit("context", **answer.context)
        if answer.text:
            run.emit("delta", text=answer.text)
        detail = answer.finish_detail or {}
        if answer.state == MessageState.ERROR:
            run.emit("error", id=client_id, retryable=False, **error_fields(detail))
            return
        tell_citations(
            run, answer.citations or (), {passage.n: passage.passage_id for passage in passages}
        )
        usage, timing = answer.usage, answer.timing
        if usage is None:  # the process died before the end was known: what it left is counted
            left = await self._message(user, answer.id, with_tokens=True)
            usage = usage_json(Usage(len(left.prompt_token_ids or ()), len(left.token_ids or ())))
        run.emit(
            "finish",
            finish_reason=answer.finish_reason,
            finish_detail=detail,
            usage=usage,
            timing=timing or NO_TIMING,
            can_continue=can_continue(answer),
            no_support=has_no_support(answer.finish_type, answer.text, answer.citations),
        )


def title_of(question: str) -> str:
    """A conversation's title: its first question on one line, cut at a word if it is long."""
    line = " ".join(question.split())
    if len(line) <= _TITLE_CHARS:
        return line
    cut = line[:_TITLE_CHARS]
    at_word = cut.rpartition(" ")[0]
    return (at_word if len(at_word) > _TITLE_CHARS // 2 else cut) + "…"


def _accept(run: Run, client_id: str, opened: Opened) -> None:
    run.emit(
        "accepted",
        id=client_id,
        conversation=opened.conversation_id,
        message=opened.answer_id,
        user_message=opened.question_id,
        parent=opened.parent_id,
    )


def _merged(stored: dict[str, Any], options: GenerationOptions) -> GenerationOptions:
    """The options of before, with those that the client names now. How soon an answer was wanted
    was said of the part before only."""
    named = {
        name: value for name, value in msgspec.to_builtins(options).items() if value is not None
    }
    return msgspec.convert(
        {**stored, "timeout": None, "priority": None, **named}, GenerationOptions
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
