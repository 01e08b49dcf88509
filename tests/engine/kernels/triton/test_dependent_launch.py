"""Where kernels may be started ahead of the one in front."""

from __future__ import annotations

import pytest
import torch

from engine.kernels.triton.dependent_launch import launch_options


@pytest.mark.parametrize(
    ("pdl", "device", "capability", "starts_ahead"),
    [
        (True, "cuda", (9, 0), True),
        (True, "cuda", (12, 0), True),
        (True, "cuda", (8, 9), False),
        (False, "cuda", (9, 0), False),
        (True, "cpu", None, False),
    ],
)
def test_only_where_it_is_asked_for_and_there(
    monkeypatch: pytest.MonkeyPatch,
    pdl: bool,
    device: str,
    capability: tuple[int, int] | None,
    starts_ahead: bool,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    options = launch_options.__wrapped__(pdl, torch.device(device))
    assert options == ({"PDL": True, "launch_pdl": True} if starts_ahead else {"PDL": False})
