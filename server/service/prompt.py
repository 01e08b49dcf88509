"""From messages and texts to token ids, in a small thread pool and never on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from engine.api import Engine
from server.service.chat_template import ChatTemplate
from server.service.errors import BadRequestError, PromptTooLongError
from server.service.messages import ChatMessage
from server.service.validation import refuse_nul

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads: the prompt, and the tokens of a cut answer that it goes on with, of
    whose text `continued_text` was shown (None: all)."""

    token_ids: tuple[int, ...]
    continued_token_ids: tuple[int, ...] = ()
    continued_text: str | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids) + len(self.continued_token_ids)


class PromptBuilder:
    """Owned by the event loop's thread; the pool's threads only call the template and the
    tokenizer, which are immutable."""

    def __init__(self, engine: Engine, num_threads: int) -> None:
        self._engine = engine
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="tokenizer")
        self._template: ChatTemplate | None = None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        continue_ids: Sequence[int] = (),
        add_generation_prompt: bool = True,
    ) -> Prompt:
        """The model's template over `messages`. Raises BadRequestError (TemplateError,
        PromptTooLongError for what cannot fit whatever its tokens are)."""
        encode = partial(
            self.template.encode,
            messages,
            add_generation_prompt=add_generation_prompt,
            check=self.check_size,
        )
        token_ids = await self._in_pool(encode)
        return Prompt(tuple(token_ids), tuple(continue_ids))

    async def raw(self, prompt: str | Sequence[int]) -> Prompt:
        """A raw completion's prompt: text, in which control tokens count as such (its author
        writes the whole prompt), or token ids. Raises BadRequestError."""
        if isinstance(prompt, str):
            refuse_nul(prompt, "prompt")
            self.check_size(prompt, param="prompt")
            encode = partial(
                self._engine.tokenizer.encode, prompt, parse_special=True, add_bos=True
            )
            token_ids = await self._in_pool(encode)
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
        return await self._in_pool(lambda: [len(encode(text)) for text in texts])

    @property
    def template(self) -> ChatTemplate:
        """The served model's template. The engine must have started."""
        if self._template is None:
            self._template = ChatTemplate(self._engine.tokenizer)
        return self._template

    async def _in_pool(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
