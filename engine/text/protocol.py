"""`Tokenizer`: what the engine and the service need of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids and back. Implementations are safe to use from several threads."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_token_bytes(self) -> int:
        """An upper bound for the UTF-8 bytes of text that one token of `encode` stands for: a
        text of more than n times as many bytes has more than n tokens. (Normalization may
        shrink a text before that; the bound is for texts that are longer by far.)"""
        ...

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends an answer (generation_config may list several)."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Control tokens by their text. Never shown, never made from a user's text."""
        ...

    @property
    def bos_token(self) -> str | None:
        """Text of the begin-of-sequence token, if there is one."""
        ...

    @property
    def eos_token(self) -> str | None:
        """Text of the main end-of-sequence token, if there is one."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja chat template."""
        ...

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> list[int]:
        """Ids of `text`. With `parse_special` the text of a control token becomes that token;
        without, it stays plain characters. `add_bos`: put the BOS first where the model's own
        tokenizer would, and never a second one."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes (perhaps a part of a character) that a token adds to the text; empty
        for control tokens."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, without control tokens."""
        ...
