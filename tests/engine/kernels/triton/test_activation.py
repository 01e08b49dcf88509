"""The gate of an MLP under the interpreter against the torch path."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.triton.activation import ACTIVATIONS, gated
from engine.models import feed_forward
from tests.engine.kernels.triton.layer_checks import check_gated

# The interpreter computes with numpy, which warns of an exponential that is infinite, as it may be.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("rows", "inner"), [(1, 64), (3, 1030), (7, 33)])
def test_gated(rows: int, inner: int, dtype: torch.dtype, activation: str) -> None:
    check_gated(rows, inner, dtype, activation, DEVICE)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_large_gates_give_no_nan(activation: str) -> None:
    gate = torch.tensor([[-60000.0, -90.0, -1e-4, 0.0, 90.0, 60000.0]], device=DEVICE)
    out = gated(torch.cat([gate, torch.ones_like(gate)], dim=1), activation)
    wanted = feed_forward.ACTIVATIONS[activation](gate)
    torch.testing.assert_close(out, wanted, rtol=1e-5, atol=1e-8)


def test_every_activation_of_the_models_is_there() -> None:
    assert set(ACTIVATIONS) == set(feed_forward.ACTIVATIONS)


def test_an_unknown_activation() -> None:
    with pytest.raises(ValueError, match="relu"):
        gated(torch.zeros(1, 2, device=DEVICE), "relu")
