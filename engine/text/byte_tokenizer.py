"""`ByteTokenizer`: one token a byte, four control tokens and a ChatML template; for the scripted
engine and for tests. No model and no file behind it."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<pad>")
_FIRST_PIECE = 256 + len(_SPECIAL)

CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class ByteTokenizer:
    """Implements `Tokenizer`: ids 0–255 are bytes, 256–259 control tokens; ids above are pieces
    that scripts add with `piece`. Safe to use from several threads."""

    vocab_size = 1 << 20
    max_token_bytes = 13  # of the control tokens; pieces are no result of `encode`
    bos_token: str | None = None
    eos_token: str | None = "<|im_end|>"
    chat_template: str | None = CHATML_TEMPLATE

    def __init__(self) -> None:
        self.special_tokens: Mapping[str, int] = {
            text: 256 + index for index, text in enumerate(_SPECIAL)
        }
        self.eos_token_ids = frozenset((256, 258))
        self._texts = {token_id: text for text, token_id in self.special_tokens.items()}
        self._split = re.compile("(" + "|".join(map(re.escape, _SPECIAL)) + ")")
        self._lock = threading.Lock()
        self._pieces: dict[bytes, int] = {}
        self._piece_bytes: list[bytes] = []

    def piece(self, data: bytes) -> int:
        """The id of a token that adds exactly `data`; the same data gives the same id."""
        if len(data) == 1:
            return data[0]
        with self._lock:
            token_id = self._pieces.get(data)
            if token_id is None:
                token_id = _FIRST_PIECE + len(self._piece_bytes)
                self._piece_bytes.append(data)
                self._pieces[data] = token_id
            return token_id

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> list[int]:
        """Bytes of `text`; there is no BOS to add."""
        if not parse_special:
            return list(text.encode())
        token_ids: list[int] = []
        for part in self._split.split(text):
            special = self.special_tokens.get(part)
            token_ids += part.encode() if special is None else (special,)
        return token_ids

    def token_bytes(self, token_id: int) -> bytes:
        """The byte, the piece, or nothing for control tokens and unknown ids."""
        if 0 <= token_id < 256:
            return bytes((token_id,))
        index = token_id - _FIRST_PIECE
        return self._piece_bytes[index] if 0 <= index < len(self._piece_bytes) else b""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text, without control tokens."""
        return b"".join(map(self.token_bytes, token_ids)).decode(errors="replace")

    def decode_all(self, token_ids: Sequence[int]) -> str:
        """The text with control tokens written out."""
        parts = (
            self._texts[token_id].encode()
            if token_id in self._texts
            else self.token_bytes(token_id)
            for token_id in token_ids
        )
        return b"".join(parts).decode(errors="replace")
