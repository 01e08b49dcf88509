from __future__ import annotations

import pytest

from scripts.gpu_work import GPU_WORKS, REFERENCE, TARGETS, GpuWork, chosen_gpu_works


def test_a_mix_has_the_same_lengths_for_all_seeds_and_other_tokens() -> None:
    work = GPU_WORKS["mix"]
    lengths = work.lengths()
    assert lengths == work.lengths()
    for values in zip(*lengths, strict=True):
        assert min(values) >= 100
        assert max(values) <= 1024
        assert sum(values) / len(values) == pytest.approx(562, rel=0.1)
    first, second = work.requests(1, 5000), work.requests(2, 5000)
    for requests in (first, second):
        assert [(len(r.prompt_token_ids), r.params.max_tokens) for r in requests] == lengths
        assert all(r.params.ignore_eos and r.params.temperature == 0.6 for r in requests)
    assert first[0].prompt_token_ids[:10] != second[0].prompt_token_ids[:10]
    assert len({request.request_id for request in first + second}) == 512


def test_two_works_ask_for_nothing_in_common() -> None:
    """Else the cache would spare the second its prompts."""
    firsts = [
        {r.prompt_token_ids[:4] for r in work.requests(1, 50_000)} for work in GPU_WORKS.values()
    ]
    assert sum(len(first) for first in firsts) == len(set.union(*firsts))


def test_the_same_seed_asks_the_same() -> None:
    work = GPU_WORKS["decode-8"]
    assert work.requests(3, 100) == work.requests(3, 100)
    assert {t for r in work.requests(3, 9) for t in r.prompt_token_ids} == set(range(9))


def test_only_the_common_part_is_common() -> None:
    prompts = [r.prompt_token_ids for r in GPU_WORKS["shared"].requests(1, 50_000)]
    assert len(prompts) == 64
    assert {len(prompt) for prompt in prompts} == {2100}
    assert len({prompt[:2000] for prompt in prompts}) == 1
    assert len({prompt[2000:2004] for prompt in prompts}) == 64


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("decode-32", 1000 * 2.0 / 256),
        ("prefill", 16 * 3500 / 2.0),
        ("shared", 2.0),
    ],
)
def test_figures_of_two_seconds(name: str, figure: float) -> None:
    assert GPU_WORKS[name].figure(2.0) == figure


def test_a_mix_counts_the_tokens_of_its_answers() -> None:
    assert GpuWork("", "", "mix", 3, 100, 100).figure(2.0) == 150


def test_short_works_are_of_the_same_kind_and_small() -> None:
    for work, short in zip(GPU_WORKS.values(), chosen_gpu_works([], short=True), strict=True):
        assert (short.name, short.kind, short.unit) == (work.name, work.kind, work.unit)
        assert sum(map(sum, short.lengths())) < 1200
        assert short.common_tokens < short.prompt_tokens
        assert short.title != work.title
    assert chosen_gpu_works(["mix"], short=False) == [GPU_WORKS["mix"]]


def test_references_and_targets_are_of_works_that_there_are() -> None:
    known = {*GPU_WORKS, "start"}
    for name, targets in TARGETS.items():
        assert targets.keys() <= REFERENCE[name].keys() <= known
