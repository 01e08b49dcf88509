from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenizer import Detokenizer


def run(pieces: list[bytes], stops: tuple[str, ...] = ()) -> tuple[list[str], str | None]:
    detokenizer = Detokenizer(lambda index: pieces[index], stops)
    sent = []
    for index in range(len(pieces)):
        text, matched = detokenizer.push(index)
        sent.append(text)
        if matched is not None:
            return sent, matched
    sent.append(detokenizer.flush())
    return sent, None


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted(cuts)
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]


def test_a_character_in_two_tokens_is_sent_whole() -> None:
    sent, _ = run([b" ok ", b"\xf0\x9f", b"\x98\x80", b" \xe5", b"\xa5\xbd"])
    assert sent == [" ok ", "", "\U0001f600", " ", "好", ""]


def test_an_unfinished_character_at_the_end_is_dropped() -> None:
    assert run([b"The answer is ", b"\xe5\xa5"])[0] == ["The answer is ", "", ""]


def test_a_continuation_completes_the_unfinished_character() -> None:
    pieces = [b"a\xe5\xa5", b"\xbd!"]
    detokenizer = Detokenizer(lambda index: pieces[index])
    detokenizer.prime([0])
    assert detokenizer.push(1).text == "好!"


def test_a_continuation_sends_what_was_held_back_before() -> None:
    """A crash can keep tokens whose text was still held as a possible stop string."""
    pieces = [b"in room ", b"K3", b"12", b"!"]
    detokenizer = Detokenizer(lambda index: pieces[index], ("K312@@",))
    detokenizer.prime([0, 1, 2], "in room ")
    assert detokenizer.push(3).text == "K312!"
    detokenizer = Detokenizer(lambda index: pieces[index])
    detokenizer.prime([0, 1, 2], "in room ")
    assert detokenizer.flush() == "K312"


def test_a_continuation_stops_at_a_string_across_the_seam() -> None:
    pieces = [b"on Thur", b"sday, 3"]
    detokenizer = Detokenizer(lambda index: pieces[index], ("Thursday",))
    detokenizer.prime([0], "on Thur")
    assert detokenizer.push(1) == ("", "Thursday")


def test_bytes_that_can_never_be_a_character_become_one_replacement() -> None:
    assert "".join(run([b"a\xff", b"b"])[0]) == "a\ufffdb"


@given(st.text(max_size=30), st.data())
def test_any_split_of_the_bytes_gives_the_text_and_never_half_a_character(
    text: str, data: st.DataObject
) -> None:
    encoded = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=8))
    sent, _ = run(cut(encoded, cuts))
    assert "".join(sent) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in sent)


@given(st.binary(max_size=30), st.data())
def test_any_split_of_any_bytes_gives_the_same_text(encoded: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=8))
    whole = "".join(run([encoded])[0])
    assert "".join(run(cut(encoded, cuts))[0]) == whole


@given(st.text("ab好😀", max_size=20), st.text("ab好", min_size=1, max_size=3), st.data())
def test_stop_strings_hold_for_any_split_of_the_bytes(
    text: str, stop: str, data: st.DataObject
) -> None:
    encoded = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=8))
    sent, matched = run(cut(encoded, cuts), (stop,))
    assert "".join(sent) == text.split(stop)[0]
    assert matched == (stop if stop in text else None)
