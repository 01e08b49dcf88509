"""What every test gets: no network, both event loops, Hypothesis profiles."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports the Hub's library, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Before anything imports Triton: without a GPU its kernels run in the interpreter.
if not os.path.exists("/dev/nvidiactl"):
    os.environ["TRITON_INTERPRET"] = "1"
# The folder for what tests leave to be looked at. The server would take it for an option.
if "LECTERN_ARTIFACTS" in os.environ:
    os.environ["TEST_ARTIFACTS"] = os.environ["LECTERN_ARTIFACTS"]
# A person's own options must not change what a test sees.
for _name in [name for name in os.environ if name.startswith("LECTERN_")]:
    del os.environ[_name]

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=300,
    deadline=None,
    derandomize=True,  # the same commit gives the same result
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_STOCK_LOOP = pytest.param(("asyncio", {"use_uvloop": False, "debug": True}), id="asyncio")
_UVLOOP = pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """uvloop, as in production; `pytest_generate_tests` adds the stock loop for tests."""
    return ("asyncio", {"use_uvloop": True})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each async test runs on both loops, unless it is marked `one_loop`."""
    if "anyio_backend" in metafunc.fixturenames:
        one = metafunc.definition.get_closest_marker("one_loop") is not None
        metafunc.parametrize(
            "anyio_backend", [_UVLOOP] if one else [_STOCK_LOOP, _UVLOOP], scope="module"
        )
