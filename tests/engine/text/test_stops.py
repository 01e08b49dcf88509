from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.stops import StopMatcher


def feed(stops: tuple[str, ...], pieces: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    sent = []
    for piece in pieces:
        text, matched = matcher.push(piece)
        sent.append(text)
        if matched is not None:
            return sent, matched
    sent.append(matcher.flush())
    return sent, None


def test_a_stop_across_pieces_never_leaks() -> None:
    sent, matched = feed(("DEFGHIJ",), [" Here: ABC", "DE", "FG", "HIJ tail"])
    assert (sent, matched) == ([" Here: ABC", "", "", ""], "DEFGHIJ")


def test_text_behind_a_stop_inside_one_piece_is_cut() -> None:
    assert feed(("\n",), ["The capital is \nParis"]) == (["The capital is "], "\n")


def test_a_false_start_is_sent_as_soon_as_it_is_one() -> None:
    assert feed(("END",), ["EN", "TER"])[0] == ["", "ENTER", ""]


def test_the_longest_tail_that_may_still_match_is_held() -> None:
    assert feed(("abab!",), ["xabab", "ab!"]) == (["x", "ab"], "abab!")


def test_what_is_held_at_the_end_is_text() -> None:
    assert feed(("STOP",), ["go STO"]) == (["go ", "STO"], None)


@pytest.mark.parametrize(
    ("stops", "text", "kept", "matched"),
    [
        (("bc", "abcd"), "xabcd", "xa", "bc"),  # complete first
        (("bc", "abc"), "xabc", "x", "abc"),  # the same end: the longest
        (("aa",), "aaa", "", "aa"),
    ],
)
def test_which_of_several_matches(
    stops: tuple[str, ...], text: str, kept: str, matched: str
) -> None:
    for pieces in ([text], list(text)):
        sent, found = feed(stops, pieces)
        assert ("".join(sent), found) == (kept, matched)


def feed_behind(sent: str, stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    matcher.prime(sent)
    out = ""
    for piece in pieces:
        text, matched = matcher.push(piece)
        out += text
        if matched is not None:
            return out, matched
    return out + matcher.flush(), None


@pytest.mark.parametrize(
    ("sent", "stops", "pieces", "expected"),
    [
        ("on Thur", ("Thursday",), ["sd", "ay, 3"], ("", "Thursday")),
        ("on Thur", ("Thursday",), ["s", "ville"], ("sville", None)),
        ("on Thur", ("Thursday",), ["s"], ("s", None)),
        ("the END", ("END",), [" of it", " END"], (" of it ", "END")),
        ("aab", ("abab",), ["a", "cabab!"], ("ac", "abab")),
        ("", ("x",), ["ax"], ("a", "x")),
    ],
)
def test_a_stop_may_begin_in_text_that_was_sent_before(
    sent: str, stops: tuple[str, ...], pieces: list[str], expected: tuple[str, str | None]
) -> None:
    assert feed_behind(sent, stops, pieces) == expected
    assert feed_behind(sent, stops, list("".join(pieces))) == expected


alphabet = st.text("abc", max_size=24)


@given(st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), alphabet, st.data())
def test_any_split_gives_the_same_text(stops: list[str], text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    sent, matched = feed(tuple(stops), pieces)
    by_char, matched_by_char = feed(tuple(stops), list(text))
    assert ("".join(sent), matched) == ("".join(by_char), matched_by_char)
    kept = "".join(sent)
    assert text.startswith(kept)
    if matched is None:
        assert kept == text
        assert not any(stop in text for stop in stops)
    else:
        assert text[len(kept) :].startswith(matched)
        assert not any(stop in kept for stop in stops)


@given(st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3), alphabet, alphabet)
def test_a_cut_changes_nothing_but_what_had_to_be_sent(
    stops: list[str], before: str, after: str
) -> None:
    """A stream that was cut and goes on ends where the whole one ends."""
    whole, matched = feed(tuple(stops), [before, after])
    first, matched_first = feed(tuple(stops), [before])
    if matched_first is not None:
        return
    rest, matched_rest = feed_behind(before, tuple(stops), [after])
    assert "".join(first) == before
    assert matched_rest == matched
    uncut = "".join(whole)
    assert before + rest == uncut if len(uncut) >= len(before) else rest == ""


def test_text_that_may_not_match_is_ordinary() -> None:
    """`min_tokens`: what is complete already never matches later, what it begins may."""
    matcher = StopMatcher(("ab", "xaby"))
    assert matcher.push("1ab", may_match=False) == ("1ab", None)
    assert matcher.push("xab", may_match=False) == ("", None)
    assert matcher.push("z") == ("xabz", None)
    assert matcher.push("2a", may_match=False) == ("2", None)
    assert matcher.push("b3") == ("", "ab")


def test_a_longer_stop_still_grows_around_one_that_did_not_count() -> None:
    matcher = StopMatcher(("ab", "xaby"))
    assert matcher.push("xab", may_match=False) == ("", None)
    assert matcher.push("y") == ("", "xaby")
