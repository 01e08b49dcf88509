from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.answer_reader import AnswerReader
from engine.scheduling.sequence import Sequence
from engine.text.byte_tokenizer import ByteTokenizer
from engine.text.detokenizer import Detokenizer, TokenTexts
from engine.types import FinishType, GenerationRequest, RequestId, SamplingParams

PIECES = ("a", "bc", "好", "é", "🙂", "\ufffd")


def make_reader(
    tokenizer: ByteTokenizer, **params: object
) -> tuple[AnswerReader, Sequence, TokenTexts]:
    request = GenerationRequest(RequestId("r"), (1, 2), SamplingParams(**params))  # type: ignore[arg-type]
    sequence = Sequence(request, arrival_s=0.0)
    texts = TokenTexts(tokenizer.token_bytes)
    return AnswerReader(sequence, tokenizer, texts, max_model_len=1000), sequence, texts


@given(
    st.lists(st.binary(min_size=0, max_size=3) | st.sampled_from(PIECES), max_size=30),
    st.lists(st.text("bc好é", min_size=1, max_size=3), max_size=2),
    st.integers(0, 9),
)
def test_plain_tokens_are_what_a_detokenizer_makes_of_them(
    pieces: list[bytes | str], stops: list[str], min_tokens: int
) -> None:
    """Broken characters, halves of characters and whole ones, in any order, with and without stop
    strings."""
    tokenizer = ByteTokenizer()
    reader, sequence, _ = make_reader(tokenizer, stop=tuple(stops), min_tokens=min_tokens)
    detokenizer = Detokenizer(tokenizer.token_bytes, tuple(stops))
    for count, piece in enumerate(pieces, 1):
        token_id = tokenizer.piece(piece.encode() if isinstance(piece, str) else piece)
        text = reader.read_plain(token_id)
        expected = detokenizer.push(token_id, may_stop=count > min_tokens)
        if text is None:
            _, detail, text = reader.read((token_id,))
            assert (detail.matched if detail else None) == expected.matched
        assert text == expected.text
        if expected.matched is not None:
            return
        sequence.token_ids.append(token_id)
    assert reader.flush() == detokenizer.flush()


def test_whole_characters_are_plain_and_halves_are_not() -> None:
    tokenizer = ByteTokenizer()
    reader, _, _ = make_reader(tokenizer)
    first, rest, whole = (tokenizer.piece(part) for part in (b"\xe5\xa5", b"\xbd!", "好".encode()))
    assert reader.read_plain(whole) == "好"
    assert reader.read_plain(first) is None
    assert reader.read((first,)) == ((first,), None, "")
    assert reader.read_plain(whole) is None, "the half character before it is nothing then"
    assert reader.read((rest,)) == ((rest,), None, "好!")
    assert reader.read_plain(whole) == "好"


def test_what_may_end_a_sequence_is_never_plain() -> None:
    tokenizer = ByteTokenizer()
    eos = next(iter(tokenizer.eos_token_ids))
    reader, sequence, _ = make_reader(tokenizer, stop_token_ids=(98,))
    assert (reader.read_plain(97), reader.read_plain(98), reader.read_plain(eos)) == (
        "a",
        None,
        None,
    )
    sequence.length_limit = 3
    assert reader.read_plain(97) is None
    ignoring, _, _ = make_reader(tokenizer, ignore_eos=True)
    assert ignoring.read_plain(eos) == ""
    stopping, _, _ = make_reader(tokenizer, stop=("zz",))
    assert (stopping.read_plain(97), stopping.read_plain(122)) == ("a", None)
    assert stopping.read((122,)) == ((122,), None, "")
    assert stopping.read_plain(97) is None, "a z is held back"
    assert stopping.read((97,)) == ((97,), None, "za")
    assert stopping.read_plain(97) == "a"


def test_text_of_a_continuation_that_is_still_to_be_sent_comes_first() -> None:
    tokenizer = ByteTokenizer()
    request = GenerationRequest(
        RequestId("r"), (1,), SamplingParams(), continued_token_ids=(97, 98), continued_text="a"
    )
    sequence = Sequence(request, arrival_s=0.0)
    texts = TokenTexts(tokenizer.token_bytes)
    reader = AnswerReader(sequence, tokenizer, texts, max_model_len=1000)
    assert reader.read_plain(99) is None
    assert reader.read((99,)) == ((99,), None, "bc")
    assert reader.read_plain(100) == "d"


def test_tokens_behind_the_end_are_cut_off() -> None:
    tokenizer = ByteTokenizer()
    reader, sequence, _ = make_reader(tokenizer, max_tokens=3)
    sequence.length_limit = 5
    token_ids, detail, text = reader.read((97, 98, 99, 100))
    assert (token_ids, text) == ((97, 98, 99), "abc")
    assert detail is not None
    assert detail.type is FinishType.MAX_TOKENS


def test_each_text_is_made_once() -> None:
    calls: list[int] = []

    def token_bytes(token_id: int) -> bytes:
        calls.append(token_id)
        return b"\xff" if token_id == 1 else b"x"

    texts = TokenTexts(token_bytes)
    assert [texts[0], texts[1], texts[0], texts[1]] == ["x", None, "x", None]
    assert calls == [0, 1]
