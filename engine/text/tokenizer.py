"""`HFTokenizer`: a tokenizer.json with its tokenizer_config.json, by the `tokenizers` library.

Templates are handed out as text and never rendered here."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models

from engine.errors import ModelLoadError

_SPACE_MARK = "\u2581"  # SentencePiece's sign for a blank


class HFTokenizer:
    """Implements `engine.api.Tokenizer`. Immutable but for a cache; safe for several threads."""

    def __init__(
        self,
        tokenizer_json: str,
        tokenizer_config: Mapping[str, Any],
        *,
        chat_template: str | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        """`chat_template` wins over the one in `tokenizer_config`. Without `eos_token_ids` the
        tokenizer's own EOS ends an answer. Raises ModelLoadError."""
        with _library_errors():
            self._parsing = Backend.from_str(tokenizer_json)
            self._parsing.no_truncation()
            self._parsing.no_padding()
            # Whether control tokens are parsed is a state of the backend, so there are two.
            self._plain = _plain_backend(self._parsing)
        self._plain.encode_special_tokens = True
        added = self._parsing.get_added_tokens_decoder()
        self._special = {
            token.content: token_id for token_id, token in added.items() if token.special
        }
        self._special_ids = frozenset(self._special.values())
        self._added = {token_id: token.content for token_id, token in added.items()}
        self._vocab_size = max(
            self._parsing.get_vocab_size(with_added_tokens=True), *(1 + i for i in added), 0
        )
        self._bos_token = _token_text(tokenizer_config.get("bos_token"))
        self._eos_token = _token_text(tokenizer_config.get("eos_token"))
        self._chat_template = chat_template or _template(tokenizer_config.get("chat_template"))
        self._eos_token_ids = frozenset(eos_token_ids) or self._own_eos_ids()
        self._bos_id = self._find_bos(tokenizer_config)
        self._is_byte_level = _is_byte_level(_decoder_state(self._parsing))
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_folder(cls, folder: Path, *, eos_token_ids: Iterable[int] = ()) -> HFTokenizer:
        """Reads tokenizer.json, tokenizer_config.json and chat_template.jinja of a model folder.
        Only the first must be there. Raises ModelLoadError, naming the file."""
        try:
            tokenizer_json = (folder / "tokenizer.json").read_text(encoding="utf-8")
            config_path = folder / "tokenizer_config.json"
            config = json.loads(config_path.read_text("utf-8")) if config_path.exists() else {}
            if not isinstance(config, dict):
                raise ModelLoadError(f"{config_path} does not hold a JSON object.")
            template_path = folder / "chat_template.jinja"
            template = template_path.read_text("utf-8") if template_path.exists() else None
        except FileNotFoundError as error:
            raise ModelLoadError(f"{error.filename} is missing.") from error
        except (OSError, ValueError) as error:
            raise ModelLoadError(f"The tokenizer in {folder} cannot be read: {error}.") from error
        return cls(tokenizer_json, config, chat_template=template, eos_token_ids=eos_token_ids)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id; the model's own vocabulary may be padded beyond it."""
        return self._vocab_size

    @cached_property
    def max_token_bytes(self) -> int:
        """The longest text that one token can stand for."""
        vocab = self._parsing.get_vocab(with_added_tokens=True)
        return max(len(piece.encode()) for piece in vocab)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that ends an answer."""
        return self._eos_token_ids

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Control tokens by their text."""
        return self._special

    @property
    def bos_token(self) -> str | None:
        """Text of the begin-of-sequence token, if there is one."""
        return self._bos_token

    @property
    def eos_token(self) -> str | None:
        """Text of the main end-of-sequence token, if there is one."""
        return self._eos_token

    @property
    def chat_template(self) -> str | None:
        """The model's own Jinja chat template."""
        return self._chat_template

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> list[int]:
        """Ids of `text`. Without `parse_special` the text of a control token stays plain
        characters. `add_bos` puts the BOS first if this tokenizer is one that does, and not
        when the text already begins with it."""
        backend = self._parsing if parse_special else self._plain
        # `encode` holds the interpreter's lock while it works, `encode_batch` does not: a text of a
        # megabyte would stop every stream of the process for a second. The fast form keeps no
        # offsets, whose release would stop them for 40 ms.
        (encoding,) = backend.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        if add_bos and self._bos_id is not None and ids[:1] != [self._bos_id]:
            ids.insert(0, self._bos_id)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """UTF-8 bytes (perhaps a part of a character) that a token adds to the text; empty for
        control tokens and for ids that stand for no token."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._find_bytes(token_id)
        return found

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, without control tokens. Bytes that are not valid UTF-8
        become U+FFFD."""
        text: str = self._parsing.decode(list(token_ids), skip_special_tokens=True)
        return text

    def _find_bytes(self, token_id: int) -> bytes:
        if token_id in self._special_ids:
            return b""
        if token_id in self._added:
            return self._added[token_id].encode()
        piece = self._parsing.id_to_token(token_id) if token_id >= 0 else None
        if piece is None:
            return b""
        if self._is_byte_level:
            return byte_level_bytes(piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(_SPACE_MARK, " ").encode()

    def _own_eos_ids(self) -> frozenset[int]:
        token_id = self._parsing.token_to_id(self._eos_token) if self._eos_token else None
        return frozenset(() if token_id is None else (token_id,))

    def _find_bos(self, config: Mapping[str, Any]) -> int | None:
        """The id that belongs in front, when the configuration or the post-processor says so."""
        bos = self._parsing.token_to_id(self._bos_token) if self._bos_token else None
        adds_bos = config.get("add_bos_token")
        if adds_bos is None:
            with _library_errors():
                adds_bos = self._parsing.encode("", add_special_tokens=True).ids[:1] == [bos]
        return bos if adds_bos else None


@contextmanager
def _library_errors() -> Iterator[None]:
    """Turns whatever the library raises into ModelLoadError."""
    try:
        yield
    except Exception as error:  # the library raises nothing more exact
        raise ModelLoadError(f"tokenizer.json cannot be read: {error}.") from error
    except BaseException as error:
        # A panic of its native code is no Exception, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise ModelLoadError(f"tokenizer.json cannot be read: {error}.") from error


def _plain_backend(parsing: Backend) -> Backend:
    """A backend that never gives a control token, once `encode_special_tokens` is set."""
    if _can_spell_control_tokens(parsing):
        return Backend.from_str(_without_control_pieces(json.loads(parsing.to_str())))
    return _second_backend(parsing) or Backend.from_str(parsing.to_str())


def _can_spell_control_tokens(backend: Backend) -> bool:
    """Whether the model itself finds a control token in plain characters: a table of whole
    pieces does, as merges do not."""
    if isinstance(backend.model, models.BPE):
        return bool(backend.model.ignore_merges) and backend.pre_tokenizer is None
    return True


def _without_control_pieces(content: dict[str, Any]) -> str:
    """tokenizer.json with control tokens under texts that nobody can guess, and the same ids. The
    unknown token keeps its text, which the model needs, and stands for nothing else."""
    model = content["model"]
    unknown = model.get("unk_token")
    if unknown is None and model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    hidden = {
        token["content"]: f"{secrets.token_hex(16)}{token['id']}"
        for token in content["added_tokens"]
        if token["special"] and token["content"] != unknown
    }
    for token in content["added_tokens"]:
        token["content"] = hidden.get(token["content"], token["content"])
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        model["vocab"] = {hidden.get(piece, piece): i for piece, i in vocabulary.items()}
    else:
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in vocabulary]
    # Post-processors name control tokens; they are never asked for.
    return json.dumps({**content, "post_processor": None})


def _second_backend(first: Backend) -> Backend | None:
    """A backend around the same model (vocabulary and merges are large and slow to read), or
    None when its added tokens would get other ids."""
    second = Backend(first.model)
    second.normalizer = first.normalizer
    second.pre_tokenizer = first.pre_tokenizer
    second.decoder = first.decoder
    added = first.get_added_tokens_decoder()
    for _, token in sorted(added.items()):
        (second.add_special_tokens if token.special else second.add_tokens)([token])
    same = all(second.token_to_id(token.content) == token_id for token_id, token in added.items())
    return second if same else None


def _decoder_state(backend: Backend) -> Mapping[str, Any] | None:
    """The decoder as it stands in tokenizer.json."""
    if backend.decoder is None:
        return None
    state: Mapping[str, Any] = json.loads(backend.decoder.__getstate__())
    return state


def _token_text(value: object) -> str | None:
    """A special token in tokenizer_config.json is a string or an object with `content`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _template(value: object) -> str | None:
    """One template, or a list of named ones of which `default` is meant."""
    if isinstance(value, list):
        named = {
            item.get("name"): item.get("template") for item in value if isinstance(item, Mapping)
        }
        value = named.get("default")
    return value if isinstance(value, str) else None


def _is_byte_level(decoder: Mapping[str, Any] | None) -> bool:
    if decoder is None:
        return False
    if decoder.get("type") == "Sequence":
        return any(_is_byte_level(part) for part in decoder.get("decoders", ()))
    return decoder.get("type") == "ByteLevel"


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character: a printable Latin-1 byte as
    itself, the others, in order, as the characters from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHAR: Mapping[str, int] = _byte_alphabet()
"""The alphabet of byte-level BPE: character → byte."""


def byte_level_bytes(piece: str) -> bytes:
    """The bytes that a byte-level BPE piece stands for. Characters outside the alphabet, as in
    an added token, stand for themselves."""
    try:
        return bytes([BYTE_OF_CHAR[char] for char in piece])
    except KeyError:
        return piece.encode()
