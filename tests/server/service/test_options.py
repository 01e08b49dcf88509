"""Options become sampling parameters, or an error that names the field."""

from __future__ import annotations

import pytest

from engine.api import SamplingParams
from server.service.errors import BadRequestError
from server.service.limits import ServiceLimits
from server.service.options import GenerationOptions

LIMITS = ServiceLimits()


def test_none_means_the_default() -> None:
    assert GenerationOptions().to_params(LIMITS) == SamplingParams()


def test_the_models_own_defaults_stand_for_what_was_left_out() -> None:
    defaults = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}
    options = GenerationOptions(temperature=0.0, top_p=0.5)
    assert options.to_params(LIMITS, defaults=defaults) == SamplingParams(
        temperature=0.0, top_p=0.5, top_k=20, repetition_penalty=1.1
    )


def test_everything_goes_through() -> None:
    options = GenerationOptions(
        max_tokens=5,
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        seed=7,
        stop="END",
        stop_token_ids=[1, 2],
        ignore_eos=True,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.5,
        min_tokens=2,
        logit_bias={"7": 1, "0": -100},
    )
    assert options.to_params(LIMITS, logprobs=4) == SamplingParams(
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.1,
        seed=7,
        max_tokens=5,
        stop=("END",),
        stop_token_ids=(1, 2),
        ignore_eos=True,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.5,
        min_tokens=2,
        logit_bias=((7, 1), (0, -100)),
        logprobs=4,
    )
    assert GenerationOptions(top_k=-1).to_params(LIMITS).top_k == 0


def test_choices_have_seeds_of_their_own() -> None:
    def seeds(seed: int | None) -> list[int | None]:
        options = GenerationOptions(seed=seed)
        return [options.to_params(LIMITS, index=index).seed for index in range(3)]

    assert seeds(7) == [7, 8, 9]
    assert seeds(None) == [None] * 3
    assert seeds(-1) == [-1, 0, 1]
    assert len(set(seeds(2**64 - 1))) == 3


@pytest.mark.parametrize(
    ("options", "param"),
    [
        (GenerationOptions(stop=["a"] * 17), "stop"),
        (GenerationOptions(stop="a" * 1001), "stop"),
        (GenerationOptions(stop=""), "stop"),
        (GenerationOptions(stop_token_ids=[1] * 17), "stop_token_ids"),
        (GenerationOptions(max_tokens=10**30), "max_tokens"),
        (GenerationOptions(max_tokens=0), "max_tokens"),
        (GenerationOptions(top_k=10**30), "top_k"),
        (GenerationOptions(top_k=-2), "top_k"),
        (GenerationOptions(seed=2**64), "seed"),
        (GenerationOptions(temperature=float("nan")), "temperature"),
        (GenerationOptions(presence_penalty=3), "presence_penalty"),
        (GenerationOptions(frequency_penalty=-3), "frequency_penalty"),
        (GenerationOptions(repetition_penalty=0), "repetition_penalty"),
        (GenerationOptions(min_tokens=-1), "min_tokens"),
        (GenerationOptions(min_tokens=10**30), "min_tokens"),
        (GenerationOptions(logit_bias={"-1": 5}), "logit_bias"),
        (GenerationOptions(logit_bias={"abc": 5}), "logit_bias"),
        (GenerationOptions(logit_bias={"٣": 5}), "logit_bias"),
        (GenerationOptions(logit_bias={"9" * 5000: 5}), "logit_bias"),
        (GenerationOptions(logit_bias={"5": 101}), "logit_bias"),
        (GenerationOptions(logit_bias={"5": 1, "05": 2}), "logit_bias"),
        (GenerationOptions(logit_bias={str(i): 1 for i in range(1025)}), "logit_bias"),
    ],
)
def test_refusals_name_the_field(options: GenerationOptions, param: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        options.to_params(LIMITS)
    assert refused.value.param == param


def test_the_engines_own_limits_hold_too() -> None:
    limits = ServiceLimits(max_stops=10_000, max_logit_biases=10_000)
    for options, param in (
        (GenerationOptions(logit_bias={str(i): 1 for i in range(1025)}), "logit_bias"),
        (GenerationOptions(stop_token_ids=list(range(257))), "stop_token_ids"),
    ):
        with pytest.raises(BadRequestError, match=param) as refused:
            options.to_params(limits)
        assert refused.value.param == param


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="heartbeat_s"):
        ServiceLimits(heartbeat_s=0)
    with pytest.raises(ValueError, match="drain_timeout_s"):
        ServiceLimits(drain_timeout_s=-1)
    assert ServiceLimits(drain_timeout_s=0, run_log_ttl_s=0).run_log_ttl_s == 0
