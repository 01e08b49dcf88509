from __future__ import annotations

import math

import pytest
import torch

from engine.execution import keyed_noise
from engine.execution.keyed_noise import draw_key, gumbel
from tests.engine.execution import plain_sampling


def test_noise_has_the_right_mean_and_variance() -> None:
    noise = gumbel(torch.tensor([draw_key(3, 11)]), torch.arange(200_000))
    assert torch.isfinite(noise).all()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.03)


def test_noise_is_the_written_out_one() -> None:
    ids = torch.tensor([-1, 0, 1, 151_935])
    for seed, position in ((0, 0), (5, 1), (2**64 - 1, 4096), (-3 % 2**64, 7)):
        key = draw_key(seed, position)
        wanted = [plain_sampling.noise(key % 2**64, int(i)) for i in ids]
        assert gumbel(torch.tensor([key]), ids).tolist() == pytest.approx(wanted, rel=1e-12)


def test_seed_position_and_token_each_change_it() -> None:
    keys = [draw_key(seed, 0) for seed in range(30)] + [draw_key(0, place) for place in range(30)]
    assert len(set(keys)) == 59
    noise = gumbel(torch.tensor(keys)[:, None], torch.arange(50))
    assert len(set(noise.flatten().tolist())) == 59 * 50


def test_the_largest_hash_gives_finite_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 53 bits the largest one rounded to 1, and its token won whatever its logit."""
    monkeypatch.setattr(
        keyed_noise,
        "_shift_right",
        lambda bits, count: torch.full_like(bits, (1 << (64 - count)) - 1),
    )
    assert torch.isfinite(gumbel(torch.tensor([0]), torch.arange(3))).all()
