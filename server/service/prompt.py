"""From messages and texts to token ids, in a small thread pool and never on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from engine.api import Engine, Tokenizer
from server.service.chat_template import ChatTemplate
from server.service.continuation import final_text
from server.service.errors import BadRequestError, PromptTooLongError, ShuttingDownError
from server.service.messages import ChatMessage
from server.service.template_options import NEW_TURN, TemplateOptions
from server.service.turns import to_turns
from server.service.validation import refuse_nul

Result = TypeVar("Result")

_LARGE_CHARS = 64 << 10
"""Texts beyond it take long enough to tokenize that nobody else should wait behind them."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads: the prompt, and the tokens of a cut answer that it goes on with, of
    whose text `continued_text` was shown (None: all). `answer_start` is what the prompt itself
    holds of the answer's text."""

    token_ids: tuple[int, ...]
    continued_token_ids: tuple[int, ...] = ()
    continued_text: str | None = None
    answer_start: str = ""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids) + len(self.continued_token_ids)


class PromptBuilder:
    """Owned by the event loop's thread; the pool's threads only call the template and the
    tokenizer, which are immutable."""

    def __init__(self, engine: Engine, num_threads: int) -> None:
        self._engine = engine
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="tokenizer")
        self._large_pool = ThreadPoolExecutor(1, thread_name_prefix="large-tokenizer")
        self._template: ChatTemplate | None = None
        self._is_closed = False

    def close(self) -> None:
        """Takes no more work, and drops what no thread has begun. Idempotent."""
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._large_pool.shutdown(wait=False, cancel_futures=True)

    async def chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        continue_ids: Sequence[int] = (),
        template: TemplateOptions = NEW_TURN,
    ) -> Prompt:
        """The model's template over `messages`. Raises BadRequestError (TemplateError,
        PromptTooLongError for what cannot fit whatever its tokens are)."""
        encode = partial(
            self.template.encode,
            messages,
            add_generation_prompt=template.add_generation_prompt,
            continue_final_message=template.continue_final_message,
            variables=template.variables,
            check=self.check_size,
        )
        num_chars = sum(_num_chars(message) for message in messages)
        token_ids = await self.in_pool(encode, num_chars)
        continues = template.continue_final_message
        start = final_text(to_turns(messages[-1:])) if continues else ""
        return Prompt(tuple(token_ids), tuple(continue_ids), answer_start=start)

    async def raw(self, prompt: str | Sequence[int]) -> Prompt:
        """A raw completion's prompt: text, in which control tokens count as such (its author
        writes the whole prompt), or token ids. Raises BadRequestError."""
        if isinstance(prompt, str):
            refuse_nul(prompt, "prompt")
            self.check_size(prompt, param="prompt")
            encode = partial(
                self._engine.tokenizer.encode, prompt, parse_special=True, add_bos=True
            )
            token_ids = await self.in_pool(encode, len(prompt))
        else:
            # Its size first: a long list is not worth looking through.
            if len(prompt) >= (window := self._engine.model.window):
                raise PromptTooLongError(len(prompt), window, param="prompt")
            token_ids = list(prompt)
            vocab_size = self._engine.tokenizer.vocab_size
            if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
                raise BadRequestError(
                    f"prompt holds a token id outside 0 … {vocab_size - 1}", param="prompt"
                )
        if not token_ids:
            raise BadRequestError("prompt must not be empty", param="prompt")
        return Prompt(tuple(token_ids))

    def check_size(self, text: str, *, param: str = "messages") -> None:
        """Raises PromptTooLongError for a text that cannot fit the window whatever its tokens
        are; tokenizing it would keep a thread busy for nothing. Any thread."""
        window, longest = self._engine.model.window, self._engine.tokenizer.max_token_bytes
        num_bytes = len(text.encode(errors="surrogatepass"))
        if num_bytes > window * longest:
            raise PromptTooLongError(-(-num_bytes // longest), window, param=param, at_least=True)

    async def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, as plain characters."""
        encode = self._engine.tokenizer.encode
        num_chars = sum(map(len, texts))
        return await self.in_pool(lambda: [len(encode(text)) for text in texts], num_chars)

    async def continuation(
        self, token_ids: tuple[int, ...], continued_token_ids: tuple[int, ...], num_told: int
    ) -> Prompt:
        """The prompt of a cut answer that goes on: the tokens of its prompt, its own tokens, and
        how many characters of their text were told."""
        # Byte by byte, as the engine and the markers are read: `decode` may tidy up blanks.
        token_bytes = self._engine.tokenizer.token_bytes

        def told() -> str:
            data = b"".join(map(token_bytes, continued_token_ids))
            return data.decode(errors="replace")[:num_told]

        text = await self.in_pool(told, len(continued_token_ids))
        return Prompt(token_ids, continued_token_ids, text)

    async def text_of(self, token_ids: Sequence[int], *, param: str = "prompt") -> str:
        """The text of tokens, control tokens written out. Raises BadRequestError."""
        work = partial(detokenized, self._engine.tokenizer, token_ids, param=param)
        return await self.in_pool(work, len(token_ids))

    @property
    def template(self) -> ChatTemplate:
        """The served model's template. The engine must have started."""
        if self._template is None:
            self._template = ChatTemplate(self._engine.tokenizer)
        return self._template

    async def in_pool(self, work: Callable[[], Result], num_chars: int) -> Result:
        """Does slow work over so much text in a thread of its kind. Raises ShuttingDownError for
        work that no thread has begun when the builder is closed."""
        if self._is_closed:
            raise ShuttingDownError()
        pool = self._large_pool if num_chars > _LARGE_CHARS else self._pool
        future = pool.submit(work)
        task = asyncio.current_task()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if self._is_closed and future.cancelled() and not (task and task.cancelling()):
                raise ShuttingDownError() from None
            raise


def _num_chars(message: ChatMessage) -> int:
    """About how much text there is to look through."""
    content = message.content
    parts = [] if content is None or isinstance(content, str) else content
    functions = (call.get("function") for call in message.tool_calls or ())
    texts = (
        content,
        message.reasoning_content,
        *(part.get("text") for part in parts),
        *(one.get("arguments") for one in functions if isinstance(one, dict)),
    )
    return sum(len(text) for text in texts if isinstance(text, str))


def detokenized(tokenizer: Tokenizer, token_ids: Sequence[int], *, param: str = "prompt") -> str:
    """The text of tokens, control tokens written out. Raises BadRequestError for ids that are no
    tokens."""
    special = {token_id: text.encode() for text, token_id in tokenizer.special_tokens.items()}
    vocab_size, token_bytes = tokenizer.vocab_size, tokenizer.token_bytes
    parts: list[bytes] = []
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise BadRequestError(
                f"{param} holds a token id outside 0 … {vocab_size - 1}", param=param
            )
        parts.append(special.get(token_id) or token_bytes(token_id))
    return b"".join(parts).decode(errors="replace")
