"""The gated MLP and the mixture against their definitions, one token and one expert at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine.models.feed_forward import ACTIVATIONS, FeedForward, MixtureOfExperts
from engine.models.linear import Linear

HIDDEN, INNER = 8, 12


def feed_forward(seed: int, activation: str = "silu") -> FeedForward:
    generator = torch.Generator().manual_seed(seed)
    gate_up = torch.randn(2 * INNER, HIDDEN, generator=generator)
    down = torch.randn(HIDDEN, INNER, generator=generator)
    return FeedForward(Linear(gate_up), Linear(down), ACTIVATIONS[activation])


def mixture(normalizes: bool, *, shared: bool = False) -> MixtureOfExperts:
    generator = torch.Generator().manual_seed(1)
    return MixtureOfExperts(
        router=torch.randn(5, HIDDEN, generator=generator),
        experts=tuple(feed_forward(10 + number) for number in range(5)),
        num_chosen=2,
        normalizes=normalizes,
        shared=feed_forward(20) if shared else None,
        shared_gate=torch.randn(1, HIDDEN, generator=generator) if shared else None,
    )


def by_definition(moe: MixtureOfExperts, token: Tensor) -> Tensor:
    scores = (moe.router @ token).softmax(0)
    best = sorted(range(5), key=lambda number: -scores[number].item())[: moe.num_chosen]
    total = sum(scores[number].item() for number in best) if moe.normalizes else 1.0
    out = torch.zeros(HIDDEN)
    for number in best:
        out += scores[number] / total * moe.experts[number](token[None])[0]
    if moe.shared is not None and moe.shared_gate is not None:
        out += torch.sigmoid(moe.shared_gate[0] @ token) * moe.shared(token[None])[0]
    return out


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("silu", lambda x: x * torch.sigmoid(x)),
        ("gelu", lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5))),
        (
            "gelu_pytorch_tanh",
            lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
        ),
    ],
)
def test_gated_mlp(activation: str, function: Callable[[Tensor], Tensor]) -> None:
    mlp = feed_forward(3, activation)
    x = torch.randn(4, HIDDEN)
    gate, up = mlp.gate_up(x).chunk(2, -1)
    torch.testing.assert_close(mlp(x), mlp.down(function(gate) * up), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("normalizes", [False, True])
def test_mixture(normalizes: bool, shared: bool) -> None:
    moe = mixture(normalizes, shared=shared)
    x = torch.randn(9, HIDDEN)
    expected = torch.stack([by_definition(moe, token) for token in x])
    torch.testing.assert_close(moe(x), expected, rtol=1e-4, atol=1e-4)


def test_a_token_alone_is_as_in_company() -> None:
    moe = mixture(True)
    x = torch.randn(7, HIDDEN)
    for row in range(7):
        torch.testing.assert_close(moe(x[row : row + 1])[0], moe(x)[row], rtol=1e-5, atol=1e-5)


def test_bfloat16_keeps_its_dtype() -> None:
    moe = mixture(True)
    narrow = MixtureOfExperts(
        moe.router.bfloat16(),
        tuple(
            FeedForward(
                Linear(torch.ones(4, HIDDEN).bfloat16()), Linear(torch.ones(HIDDEN, 2).bfloat16())
            )
            for _ in range(5)
        ),
        2,
        True,
    )
    out = narrow(torch.randn(3, HIDDEN).bfloat16())
    assert (out.dtype, out.shape) == (torch.bfloat16, (3, HIDDEN))
