"""`ChatApp`: what a user may do in a conversation. Implements the service's `ConversationApp`.

Each method checks what can be known at once (whose conversation, which message, which options),
opens a run, and leaves the rest to it: the run's task stores the question before it tells the
client `accepted`, so what was acknowledged is stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from engine.api import Usage
from server.app.access import Access
from server.app.answer_options import ChatDefaults, continued
from server.app.answering import Answering, Asked
from server.app.carrying import Carrying
from server.app.question_counter import QuestionCounter
from server.app.records import (
    can_continue,
    is_answered,
    message_json,
)
from server.app.replay import accept, tell_again
from server.app.titles import title_of
from server.service.auth import UserId, is_account
from server.service.errors import (
    BadRequestError,
    ConversationBusyError,
    NotFoundError,
    ServiceError,
    UnauthorizedError,
)
from server.service.generation import GenerationOptions
from server.service.limits import ServiceLimits
from server.service.messages import Ask, Carry, Continue, Count, Edit, Feedback, Regenerate, Undo
from server.service.runs import Produce, Run, RunRegistry
from server.service.usage import usage_json
from server.service.user_sessions import UserSessions
from server.service.validation import refuse_nul
from server.store.conversations import Conversations
from server.store.messages import (
    AnswerChangedError,
    GoneError,
    Messages,
    NoSeamError,
    Opened,
)
from server.store.schema import Conversation, Message, MessageState
from server.store.seams import Part, part_of


class ChatApp:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        runs: RunRegistry,
        answering: Answering,
        access: Access,
        conversations: Conversations,
        messages: Messages,
        sessions: UserSessions,
        *,
        carrying: Carrying,
        counter: QuestionCounter,
        limits: ServiceLimits,
        defaults: ChatDefaults,
        static_version: str,
    ) -> None:
        """`static_version`: the content hash under which the page's files are served."""
        self._runs = runs
        self._answering = answering
        self._access = access
        self._conversations = conversations
        self._messages = messages
        self._sessions = sessions
        self._carrying = carrying
        self._counter = counter
        self._limits = limits
        self._defaults = defaults
        self._static_version = static_version

    async def ask(self, user: UserId, message: Ask) -> Run:
        """Answers a question about a course, in a new conversation or after `parent` (an answer
        of the conversation; None: its latest)."""
        refuse_nul(message.text, "text")
        options = self._options(message.options)
        course_id, title = await self._course_of(user, message)
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
                title=title,
                client_id=message.id,
                is_guest=not is_account(user),
            )
            if opened := await self._open(run, user, message.id, opening, title):
                await self._answering.answer(
                    run, Asked(user, opened, course_id, message.text, options)
                )

        return self._start(user, produce, key=message.id, conversation=message.conversation)

    async def continue_(self, user: UserId, message: Continue) -> Run:
        """Goes on with a cut answer, token-exactly; its text grows. A repeated message is told
        again what it made, as a repeated question is."""
        answer = await self._message(user, message.message)
        conversation = await self._conversation(user, answer.conversation_id)
        course_id = await self._course_id(user, conversation)

        async def produce(run: Run) -> None:
            await self._answering.settle()
            answer = await self._message(user, message.message, with_tokens=True)
            part = part_of(answer, message.id)
            if part is not None and is_answered(answer, part):
                await self._replay(run, user, message.id, answer, part)
                return
            if not can_continue(answer) or not answer.token_ids or not answer.prompt_token_ids:
                raise BadRequestError(
                    "This answer has ended; there is nothing to continue.", param="message"
                )
            options = self._options(continued(answer.options or {}, message.options))
            question = await self._message(user, answer.parent_id or "")
            try:
                await self._messages.reopen(
                    answer, options=msgspec.to_builtins(options), client_id=message.id
                )
            except AnswerChangedError:
                raise ConversationBusyError("This answer was changed just now.") from None
            opened = Opened(answer.conversation_id, question.id, answer.id, question.parent_id)
            accept(run, message.id, opened)
            self._announce(run, opened, conversation.title)
            await self._answering.extend(run, answer, question.text, course_id, options)

        return self._start(user, produce, key=message.id, conversation=conversation.id)

    async def regenerate(self, user: UserId, message: Regenerate) -> Run:
        """Answers a question once more: `message` is the question or one of its answers, and
        the new answer is a sibling of the others. A summary that was cut or came to nothing is
        written again in its place."""
        named = await self._message(user, message.message)
        if named.role == "summary":
            return await self._summarise_again(user, message, named)
        question = named
        if named.role == "assistant":
            question = await self._message(user, named.parent_id or "")
        if question.role != "user":
            raise BadRequestError("Only a question can be answered again.", param="message")
        conversation = await self._conversation(user, named.conversation_id)
        course_id = await self._course_id(user, conversation)
        options = self._options(message.options, temperature=self._defaults.regenerate_temperature)

        async def produce(run: Run) -> None:
            opening = partial(self._messages.open_answer, question.id, client_id=message.id)
            if opened := await self._open(run, user, message.id, opening, conversation.title):
                await self._answering.answer(
                    run, Asked(user, opened, course_id, question.text, options)
                )

        return self._start(user, produce, key=message.id, conversation=conversation.id)

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
            if opened := await self._open(run, user, message.id, opening, conversation.title):
                await self._answering.answer(
                    run, Asked(user, opened, course_id, message.text, options)
                )

        return self._start(user, produce, key=message.id, conversation=conversation.id)

    async def carry(self, user: UserId, message: Carry) -> Run:
        """Begins a conversation with a summary of the one that ends with an answer."""
        answer = await self._message(user, message.message)
        if answer.role != "assistant":
            raise BadRequestError("Only what follows an answer can be carried on.", param="message")
        if answer.state == MessageState.RUNNING:
            raise ConversationBusyError("This conversation is still answering.")
        conversation = await self._conversation(user, answer.conversation_id)
        course_id = await self._course_id(user, conversation)
        options = self._options(message.options)

        async def produce(run: Run) -> None:
            await self._carrying.carry(
                run, message, conversation=conversation, course_id=course_id, options=options
            )

        return self._start(user, produce, key=message.id)

    async def _summarise_again(self, user: UserId, message: Regenerate, summary: Message) -> Run:
        conversation = await self._conversation(user, summary.conversation_id)
        await self._course_id(user, conversation)
        options = self._options(message.options)

        async def produce(run: Run) -> None:
            await self._carrying.write_again(run, message, summary.id, options)

        return self._start(user, produce, key=message.id, conversation=conversation.id)

    async def feedback(self, user: UserId, message: Feedback) -> None:
        """Stores what the user thinks of an answer; `none` takes it back."""
        answer = await self._message(user, message.message)
        if answer.role != "assistant":
            raise BadRequestError("Only an answer can be judged.", param="message")
        value = None if message.value == "none" else message.value
        try:
            await self._messages.put_feedback(user, answer.id, value, message.note)
        except GoneError as error:
            raise _gone(error) from None

    async def undo(self, user: UserId, message: Undo) -> dict[str, Any]:
        """Takes back the last continuation of an answer, also where later questions follow: what
        the model saw of it then stays as it is told. The fields: `message`, as it is now."""
        answer = await self._message(user, message.message)
        # An end that could not be stored would be stored over the undone one.
        await self._answering.settle()
        if self._runs.active_in(answer.conversation_id) is not None:
            raise ConversationBusyError("This conversation is still answering.")
        try:
            await self._messages.undo(answer.id, key=message.id)
        except NoSeamError:
            raise BadRequestError(
                "This answer has no continuation that could be undone.", param="message"
            ) from None
        except AnswerChangedError:
            raise ConversationBusyError("This conversation is still answering.") from None
        except GoneError as error:
            raise _gone(error) from None
        answer = await self._message(user, answer.id)
        passages = await self._messages.passages([answer.id])
        feedback = await self._messages.feedback(user, [answer.id])
        conversation = await self._conversation(user, answer.conversation_id)
        self._sessions.changed(user, conversation=conversation.id, title=conversation.title)
        return {"message": message_json(answer, passages[answer.id], feedback.get(answer.id))}

    async def count(self, user: UserId, message: Count) -> dict[str, Any]:
        """How much of the window a question would take, for who may ask it."""
        if message.conversation is None:
            await self._access.first_course(user)
        else:
            conversation = await self._conversation(user, message.conversation)
            await self._course_id(user, conversation)
        return await self._counter.count(message.text)

    def welcome(self, user: UserId) -> dict[str, Any]:
        """What a page must know besides: how long an answer may be that does not say, whose
        account it is used with (None: a guest's), and which page is the newest."""
        return {
            "defaults": {"max_tokens": self._defaults.max_tokens},
            "login": user if is_account(user) else None,
            "static": self._static_version,
        }

    async def _course_of(self, user: UserId, message: Ask) -> tuple[str, str]:
        """The course that a question is about, and its conversation's title."""
        named = None
        if message.course is not None:
            named = await self._access.member(user, message.course)
        if message.conversation is None:
            member = named or await self._access.first_course(user)
            return member.course_id, title_of(message.text)
        conversation = await self._conversation(user, message.conversation)
        course_id = await self._course_id(user, conversation)
        if named is not None and named.course_id != course_id:
            raise BadRequestError("The conversation is about another course.", param="course")
        return course_id, conversation.title

    async def _check_parent(self, user: UserId, message: Ask) -> None:
        parent = await self._message(user, message.parent or "", param="parent")
        if parent.conversation_id != message.conversation:
            raise BadRequestError("parent is of another conversation", param="parent")
        if parent.role not in ("assistant", "summary"):
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
        filled = self._defaults.fill(options, temperature=temperature)
        filled.to_params(self._limits)
        return filled

    def _start(
        self, user: UserId, produce: Produce, *, key: str, conversation: str | None = None
    ) -> Run:
        """`RunRegistry.open` for something that may be deleted while it goes on."""

        async def told(run: Run) -> None:
            try:
                await produce(run)
            except GoneError as error:
                raise _gone(error) from None

        return self._runs.open(user, told, key=key, conversation=conversation)

    async def _open(
        self,
        run: Run,
        user: UserId,
        client_id: str,
        opening: Callable[[], Awaitable[Opened]],
        title: str,
    ) -> Opened | None:
        """Stores what `opening` stores for a new message, and tells that it is accepted.

        A client may repeat its message after the run's log is gone (after ten minutes, or after
        a restart), or because of an error that it may retry. What was answered is told again,
        which ends the run: None. What was not gets another answer to the same question."""
        await self._answering.settle()
        stored = await self._messages.answer_to_client_id(user, client_id)
        if stored is None:
            opened = await opening()
        elif is_answered(stored):
            await self._replay(run, user, client_id, stored)
            return None
        else:
            if self._runs.active_in(stored.conversation_id) not in (None, run):
                raise ConversationBusyError("This conversation is still answering.")
            opened = await self._messages.open_answer(stored.parent_id or "", client_id=client_id)
        accept(run, client_id, opened)
        self._announce(run, opened, title)
        return opened

    def _announce(self, run: Run, opened: Opened, title: str) -> None:
        """Tells the user's other sockets of a run that was accepted. Reads nothing: it may not
        fail between `accepted` and what ends the answer whatever happens."""
        self._sessions.opened(
            run.owner,
            run=run.id,
            conversation=opened.conversation_id,
            message=opened.answer_id,
            title=title,
        )

    async def _replay(
        self, run: Run, user: UserId, client_id: str, answer: Message, part: Part | None = None
    ) -> None:
        """Tells a stored answer, or one continuation of it, again, to its end."""
        question = await self._message(user, answer.parent_id or "")
        passages = (await self._messages.passages([answer.id]))[answer.id]
        usage = answer.usage
        if usage is None:  # the process died before the end was known: what it left is counted
            left = await self._message(user, answer.id, with_tokens=True)
            usage = usage_json(Usage(len(left.prompt_token_ids or ()), len(left.token_ids or ())))
        opened = Opened(answer.conversation_id, question.id, answer.id, question.parent_id)
        accept(run, client_id, opened)
        tell_again(run, client_id, answer, passages, usage, part)


def _gone(error: GoneError) -> ServiceError:
    if error.what == "user":
        return UnauthorizedError("This account was deleted.")
    return NotFoundError(f"This {error.what} was deleted.", param=error.what)
