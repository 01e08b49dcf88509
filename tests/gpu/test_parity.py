"""The parity suite of the CPU's engine on a CUDA device, in float32: the same tests, with steps
in flight, captured graphs and the GPU's kernels."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine import test_parity as suite
from tests.support.tiny_models import GENERIC_MODELS, TINY_MODELS, build_tiny_model

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SETTINGS: dict[str, Any] = {"device": "cuda", "block_size": 16, "gpu_memory_utilization": 0.5}


@pytest.fixture(scope="module", params=[*sorted(TINY_MODELS), *sorted(GENERIC_MODELS)])
def reference(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> suite.Reference:
    folder = tmp_path_factory.mktemp(request.param)
    return suite.Reference(build_tiny_model(folder, request.param), SETTINGS)


test_alone = suite.test_alone_and_the_oracle_distinguishes_its_prompts
test_in_a_mixed_batch = suite.test_in_a_mixed_batch
test_with_prompts_in_odd_chunks = suite.test_with_prompts_in_odd_chunks
test_with_preemption = suite.test_with_preemption
test_with_prefix_hits = suite.test_with_prefix_hits
test_continued = suite.test_continued
