"""Ranking and coverage of passages, from words and counts alone."""

from __future__ import annotations

from server.app.relevance import known_share, rarity, score_hits
from server.store.analysis import QueryUnit, query_units
from server.store.passage_index import Hit, ItemWords, WordCounts

COUNTS = WordCounts(10, {"zebra": 1, "walrus": 5, "gizmo": 0})


def units(*words: str, is_asked: bool = True) -> list[QueryUnit]:
    return [QueryUnit((word,), is_asked=is_asked) for word in words]


def test_words_that_occur_nowhere_count_against_a_passage() -> None:
    hits = [Hit("a", {"zebra": 1.0}, 10)]
    (relevance,) = score_hits(units("zebra", "gizmo"), hits, COUNTS)
    assert 0 < relevance.coverage < 1
    (full,) = score_hits(units("zebra"), hits, COUNTS)
    assert full.coverage == 1
    (number,) = score_hits(query_units("zebra lab 7"), hits, COUNTS)
    assert number.coverage < relevance.coverage


def test_rare_words_count_for_more_and_repeats_for_less_each_time() -> None:
    asked = units("zebra", "walrus")
    rare, common, twice = score_hits(
        asked,
        [Hit("r", {"zebra": 1}, 9), Hit("c", {"walrus": 1}, 9), Hit("t", {"walrus": 2}, 9)],
        COUNTS,
    )
    assert rare.rank > twice.rank > common.rank
    assert twice.rank < 2 * common.rank
    assert rare.coverage > common.coverage == twice.coverage


def test_what_is_not_asked_ranks_and_covers_nothing() -> None:
    helped, plain = score_hits(
        [*units("zebra"), *units("walrus", is_asked=False)],
        [Hit("h", {"zebra": 1, "walrus": 1}, 9), Hit("p", {"zebra": 1}, 9)],
        COUNTS,
    )
    assert helped.rank > plain.rank
    assert helped.coverage == plain.coverage == 1
    assert known_share(units("gizmo", is_asked=False), COUNTS) == 0


def test_long_passages_gain_less_from_a_word() -> None:
    short, long = score_hits(
        units("zebra"), [Hit("s", {"zebra": 1}, 10), Hit("l", {"zebra": 1}, 400)], COUNTS
    )
    assert short.rank > long.rank


def test_the_known_share_is_by_weight() -> None:
    assert known_share([*units("zebra"), QueryUnit(("gizmo",), weight=3)], COUNTS) == 0.25
    assert known_share([], COUNTS) == 0


def test_a_number_that_occurs_nowhere_is_as_rare_as_can_be() -> None:
    assert rarity(QueryUnit(("gizmo",), is_number=True), COUNTS) > rarity(
        QueryUnit(("gizmo",)), COUNTS
    )


def with_items(*items: dict[str, float]) -> Hit:
    words: dict[str, float] = {}
    for item in items:
        for word, count in item.items():
            words[word] = words.get(word, 0.0) + count
    return Hit("p", words, 60, items=tuple(ItemWords(item, 30) for item in items))


def test_words_that_stand_together_rank_above_the_same_words_apart() -> None:
    asked = units("zebra", "walrus")
    together, apart, plain = score_hits(
        asked,
        [
            with_items({"zebra": 1, "walrus": 1}),
            with_items({"zebra": 1}, {"walrus": 1}),
            Hit("p", {"zebra": 1, "walrus": 1}, 60),
        ],
        COUNTS,
    )
    assert together.rank > apart.rank
    assert together.coverage == apart.coverage == plain.coverage == 1
    assert together.rank > plain.rank  # which was indexed without its items


def test_a_second_item_counts_for_less_than_the_best() -> None:
    asked = units("zebra")
    one, two, three = score_hits(
        asked, [with_items(*[{"zebra": 1.0}] * n) for n in (1, 2, 3)], COUNTS
    )
    assert one.rank < two.rank < 1.5 * one.rank
    assert three.rank - two.rank < two.rank - one.rank


def test_what_only_helps_counts_in_an_item_beside_what_is_asked() -> None:
    counts = WordCounts(10, {"zebra": 5, "date": 1})
    asked = [*units("zebra"), QueryUnit(("date",), weight=3, is_asked=False)]
    both, scattered, only = score_hits(
        asked,
        [
            with_items({"zebra": 1, "date": 1}, {"gnu": 1}),
            with_items({"zebra": 1}, {"date": 1}),
            with_items({"date": 1}),
        ],
        counts,
    )
    assert both.rank > scattered.rank > only.rank
    helped_only = score_hits([asked[1]], [with_items({"date": 1})], counts)
    assert helped_only[0].rank > only.rank  # where nothing else is asked, it is what orders
