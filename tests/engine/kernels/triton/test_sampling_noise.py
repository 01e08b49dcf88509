from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from engine.execution.keyed_noise import draw_key, gumbel, mixed_seed
from engine.execution.logit_rows import HEAD_DEPTH, LogitRows
from engine.kernels.triton import sampling_noise as noise
from engine.kernels.triton.sampling_layout import SamplingLayout

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEEDS = [0, 1, -1, 2**63 - 1, 2**64 - 1, -(2**63), 123456789]


@triton.jit  # type: ignore[untyped-decorator]
def _noise(seed: Any, position: Any, keys: Any, exact: Any, rough: Any, N: tl.constexpr) -> None:
    """Of the token ids -1 … N - 2."""
    key = noise.row_key(tl.load(seed), tl.load(position))
    ids = tl.arange(0, N)
    tl.store(keys, key)
    tl.store(exact + ids, noise.gumbel(key, ids - 1))
    tl.store(rough + ids, noise.rough_gumbel(key, ids - 1))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("position", [0, 5, 2**31 - 2])
def test_keys_and_noise_are_those_of_the_cpu(seed: int, position: int) -> None:
    """The token behind `position` is drawn."""
    size = 1024
    key = torch.zeros(1, dtype=torch.int64, device=DEVICE)
    exact = torch.full((size,), math.nan, dtype=torch.float64, device=DEVICE)
    rough = torch.full((size,), math.nan, dtype=torch.float32, device=DEVICE)
    seeds = torch.tensor([mixed_seed(seed)], device=DEVICE)
    positions = torch.tensor([position], dtype=torch.int32, device=DEVICE)
    _noise[(1,)](seeds, positions, key, exact, rough, N=size)
    wanted_key = draw_key(seed, position + 1)
    assert int(key) == wanted_key
    wanted = gumbel(torch.tensor(wanted_key), torch.arange(-1, size - 1))
    assert exact.cpu().tolist() == pytest.approx(wanted.tolist(), rel=1e-14)
    assert float((rough.cpu().double() - wanted).abs().max()) < noise.NOISE_ERROR.value / 4


@triton.jit  # type: ignore[untyped-decorator]
def _thresholds(
    largest: Any, temperature: Any, log_min_p: Any, out: Any, N: tl.constexpr, DEPTH: tl.constexpr
) -> None:
    row = tl.program_id(0)
    most = tl.load(largest + row)
    heat = tl.load(temperature + row)
    tl.store(out + row, noise.head_threshold(most, heat, DEPTH))
    tl.store(out + N + row, noise.min_p_cut(most, heat, tl.load(log_min_p + row)))
    tl.store(out + 2 * N + row, noise.above(most))
    tl.store(out + 3 * N + row, noise.unordered(noise.ordered(most)))


def test_thresholds_are_those_of_the_cpu() -> None:
    """To the last bit, with zeros, huge and tiny numbers and temperatures among them."""
    chance = torch.Generator().manual_seed(0)
    largest = torch.randn(40, generator=chance) * 10
    largest[:8] = torch.tensor([0.0, -0.0, 1e30, -1e30, 1e-45, -1e-45, 3e38, 1.0])
    temperatures = torch.rand(40, generator=chance) * 2 + 1e-5
    temperatures[[0, 7, 9]] = 1e-5
    log_min_p = torch.rand(40, generator=chance, dtype=torch.float64).log()
    log_min_p[[0, 8]] = 0.0
    log_min_p[[1, 10]] = -math.inf
    log_min_p[[2, 11]] = math.log(1e-300)
    out = torch.full((4, 40), math.nan, device=DEVICE)
    parts = [one.to(DEVICE) for one in (largest, temperatures, log_min_p)]
    _thresholds[(40,)](*parts, out, N=40, DEPTH=HEAD_DEPTH)
    thresholds, cuts, above, same = out.cpu()
    rows = LogitRows(largest[:, None], temperatures.tolist())
    assert torch.equal(thresholds, rows.thresholds[:, 0])
    assert torch.equal(above, torch.nextafter(largest, torch.tensor(math.inf)))
    assert torch.equal(same, largest)
    assert cuts[[1, 10]].tolist() == [-math.inf] * 2
    is_on = log_min_p > -math.inf
    lower = torch.nextafter(cuts, torch.tensor(-math.inf))

    def scaled(logits: torch.Tensor) -> torch.Tensor:
        return (logits.double() - largest.double()) / temperatures.double()

    assert bool((scaled(cuts) >= log_min_p)[is_on].all())
    assert bool((scaled(lower) < log_min_p)[is_on].all())


@pytest.mark.parametrize("sizes", [{"tile": 96}, {"part": 8192}, {"chunk": 8192}, {"part": 3}])
def test_sizes_that_do_not_fit_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="powers of two"):
        SamplingLayout(1000, **sizes)
