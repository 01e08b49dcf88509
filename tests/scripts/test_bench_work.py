from __future__ import annotations

from scripts.bench_work import (
    QUOTED_PASSAGE,
    TITLES,
    WORKS,
    chosen_works,
    expected_quote,
    quote_prompt,
    quoted_share,
    random_prompts,
)


def test_random_prompts_depend_on_the_seed_alone_and_keep_clear_of_what_is_excluded() -> None:
    prompts = random_prompts(7, 3, 200, 50, excluded={0, 49})
    assert prompts == random_prompts(7, 3, 200, 50, excluded=[49, 0])
    assert prompts != random_prompts(8, 3, 200, 50, excluded={0, 49})
    assert [len(prompt) for prompt in prompts] == [200] * 3
    assert {token_id for prompt in prompts for token_id in prompt} == set(range(1, 49))


def test_a_short_work_is_the_same_kind_of_work() -> None:
    (work,) = chosen_works(["decode-16"], short=True)
    assert (work.name, work.kind) == ("decode-16", "decode")
    assert work.num_sequences < 16
    assert work.context < 600


def test_all_works_are_chosen_by_default_and_have_a_title() -> None:
    assert chosen_works([], short=False) == list(WORKS.values())
    assert TITLES.keys() == WORKS.keys()


def test_the_quoting_answer_has_begun_where_the_expected_one_goes_on() -> None:
    begun = quote_prompt().rpartition("<|im_start|>assistant\n")[2]
    assert begun
    assert begun + expected_quote() == QUOTED_PASSAGE


def test_quoted_share_ends_at_the_first_difference() -> None:
    assert quoted_share("abXdef", "abcdef") == 2 / 6
    assert quoted_share("abc", "abcdef") == 1.0
    assert quoted_share("abcdef!!", "abcdef") == 6 / 8
    assert quoted_share("", "abc") == 0.0
