from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from engine.speculation.ngram_index import MAX_LENGTH, MIN_LENGTH, Followed, NgramIndex


def test_the_place_of_the_longest_match_is_drafted_from() -> None:
    index = NgramIndex([1, 2, 3, 4, 50, 51, 9, 3, 4, 60, 61, 2, 3, 4])
    assert index.length == 3
    assert index.draft(3) == (50, 51, 9)


def test_of_equally_long_matches_the_last_is_taken() -> None:
    index = NgramIndex([3, 4, 50, 9, 3, 4, 60, 8, 3, 4])
    assert index.length == 2
    assert index.draft(2) == (60, 8)


def test_one_token_in_common_is_no_match() -> None:
    assert NgramIndex([1, 2, 9, 2]).length == 0
    assert NgramIndex([7]).length == 0
    assert NgramIndex([7, 7]).length == 0


def test_a_match_that_reaches_the_end_repeats_itself() -> None:
    index = NgramIndex([5, 1, 2, 3, 1, 2, 3])
    assert index.draft(7) == (1, 2, 3, 1, 2, 3, 1)
    assert NgramIndex([9, 4, 4, 4]).draft(3) == (4, 4, 4)


def test_what_each_token_confirms_is_told() -> None:
    tokens = [1, 2, 3, 4, 5, 6, 70, 1, 2]
    index = NgramIndex(tokens)
    tokens += [3, 4, 80, 1]
    assert list(index.catch_up()) == [Followed(2, True), Followed(3, True), Followed(4, False)]
    assert index.length == 0
    tokens += [2]
    assert list(index.catch_up()) == []
    assert index.draft(2) == (3, 4)


def test_nothing_new_tells_nothing_and_keeps_the_match() -> None:
    index = NgramIndex([1, 2, 3, 1, 2])
    assert list(index.catch_up()) == []
    assert index.draft(1) == (3,)


def longest_match(tokens: list[int]) -> int:
    """By looking at every earlier place."""
    best = 0
    for place in range(len(tokens)):
        length = 0
        while (
            length < min(place, MAX_LENGTH)
            and tokens[place - 1 - length] == tokens[len(tokens) - 1 - length]
        ):
            length += 1
        if place < len(tokens) and length >= MIN_LENGTH:
            best = max(best, length)
    return best


# So short that no pair of tokens has more earlier places than are compared.
token_lists = st.lists(st.integers(0, 3), min_size=1, max_size=17)


@given(token_lists, token_lists)
def test_the_match_is_the_longest_however_the_tokens_came(
    prompt: list[int], output: list[int]
) -> None:
    tokens = list(prompt)
    index = NgramIndex(tokens)
    assert index.length == longest_match(tokens)
    for token in output[: 17 - len(prompt)]:
        tokens.append(token)
        for _ in index.catch_up():
            pass
        assert index.length == longest_match(tokens)


@given(st.lists(st.integers(0, 2), min_size=3, max_size=80), st.integers(0, 79), st.integers(1, 9))
def test_a_draft_is_what_followed_an_equal_end(
    tokens: list[int], num_given: int, count: int
) -> None:
    """Also in texts so repetitive that not every earlier place is compared."""
    known = tokens[:num_given]
    index = NgramIndex(known)
    for token in tokens[num_given:]:
        known.append(token)
        for _ in index.catch_up():
            pass
    if not index.length:
        assert longest_match(tokens) == 0
        return
    draft = index.draft(count)
    assert len(draft) == count
    longer = [*tokens, *draft]
    places = [
        place
        for place in range(index.length, len(tokens))
        if tokens[place - index.length : place] == tokens[len(tokens) - index.length :]
        and longer[place : place + count] == list(draft)
    ]
    assert places, "no earlier place with that end is followed by the draft"


def test_memory_is_bounded_by_the_tokens() -> None:
    tokens = [(i * i * 7919 + i) % 50_021 for i in range(8192)]
    tracemalloc.start()
    try:
        index = NgramIndex(tokens)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert index.length == 0
    assert used < 200 * len(tokens)
