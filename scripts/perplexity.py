"""Measures what kept forms of the weights cost: perplexity on the sample course against float32.

    .venv/bin/python -m scripts.perplexity smollm2-135m-instruct
    .venv/bin/python -m scripts.perplexity MODEL --variant --variant weights=q8 --variant weights=q4
    .venv/bin/python -m scripts.perplexity MODEL --variant fp8=weights --variant fp8=weights,kv

The text of the sample course, English and Chinese apart, is cut into windows of 512 tokens, and
each token behind the first of its window is predicted from those before it. The first model has
float32 weights and torch's products; each `--variant` (fields of EngineConfig; without any: as it
is served) is compared with it: perplexity, mean Kullback-Leibler divergence of its predictions
from float32's in nats a token, and how often both think the same token likeliest. Windows go
through the engine's own runner, so that the kernels that serve are the ones that are measured.
`fp8=PARTS` (weights, kv) stands for 8-bit floats on a GPU, worked out in float32 on the CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.assembly import assemble_model
from engine.config import EngineConfig
from engine.execution.model_runner import TorchModelRunner
from engine.execution.native_runner import NativeModelRunner
from engine.execution.runner import ModelRunner, Sample
from engine.execution.sampler import Sampler
from engine.kv.block_pool import BlockId
from engine.models.decoder import Decoder
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.text.protocol import Tokenizer
from engine.types import GenerationRequest, RequestId, SamplingParams
from scripts.emulated_fp8 import EmulatedFp8, parse_parts
from scripts.engine_settings import engine_config, find_model, parse_settings
from scripts.machine_facts import machine_facts
from server.app.factory import SAMPLE_COURSE

WINDOW = 512
LANGUAGES = ("en", "zh")
REFERENCE = "float32"
REFERENCE_SETTINGS = ("weights=float", "dtype=float32")


class LogitsTap(Sampler):
    """Stands where a runner has its sampler, and keeps the logits that come by."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.empty(0)

    def sample(self, logits: Tensor, items: Sequence[ScheduledSequence]) -> list[Sample]:
        """Keeps `logits` [N, vocab]; what it returns means nothing."""
        self.logits = logits
        return [Sample((0,)) for _ in items]


class TappedModel:
    """A model as the engine would run it, asked for the logits of whole windows."""

    def __init__(self, config: EngineConfig, fp8_parts: Sequence[str] = ()) -> None:
        """`fp8_parts`: what is rounded to 8-bit floats, see `scripts.emulated_fp8`."""
        self._fp8_parts = fp8_parts
        self._tap = LogitsTap()
        assembly = assemble_model(config, None, wrap_runner=self._tapped)
        self.tokenizer: Tokenizer = assembly.tokenizer
        self.info = assembly.model
        self._block_size = assembly.config.block_size

    def _tapped(self, runner: ModelRunner) -> ModelRunner:
        """Keeps the runner that the configuration gets, to run windows through it."""
        assert isinstance(runner, TorchModelRunner | NativeModelRunner)
        runner.sampler = self._tap
        if self._fp8_parts:
            assert isinstance(runner, TorchModelRunner)
            assert isinstance(runner.model, Decoder)
            runner.model = EmulatedFp8(runner.model, self._fp8_parts)
        self._runner = runner
        return runner

    def logits(self, token_ids: Sequence[int]) -> Tensor:
        """[T, vocab] float32: the logits behind each of T tokens. All but the first are given as
        drafts, because behind drafts a runner samples, too."""
        params = SamplingParams(temperature=0.0)
        request = GenerationRequest(RequestId("window"), tuple(token_ids[:1]), params)
        sequence = EngineSequence(request, arrival_s=0.0)
        num_blocks = -(-len(token_ids) // self._block_size)
        sequence.table.extend(BlockId(block) for block in range(num_blocks))
        item = ScheduledSequence(sequence, 0, len(token_ids), True, tuple(token_ids[1:]))
        self._runner.execute(SchedulerOutput((item,), num_prefill_tokens=len(token_ids)))
        return self._tap.logits.float()


@dataclass(frozen=True, slots=True)
class Errors:
    """Sums over `num_tokens` predictions: negative log likelihood of the text and divergence
    from the reference in nats, and how many times both had the same likeliest token."""

    num_tokens: int = 0
    nll: float = 0.0
    divergence: float = 0.0
    num_agreed: int = 0

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.num_tokens + other.num_tokens,
            self.nll + other.nll,
            self.divergence + other.divergence,
            self.num_agreed + other.num_agreed,
        )

    def figures(self) -> dict[str, float]:
        """What is shown."""
        return {
            "tokens": self.num_tokens,
            "perplexity": math.exp(self.nll / self.num_tokens),
            "divergence": self.divergence / self.num_tokens,
            "agreement": self.num_agreed / self.num_tokens,
        }


def window_errors(reference: Tensor, logits: Tensor, token_ids: Sequence[int]) -> Errors:
    """Compares predictions of a window's tokens but the first: `reference` and `logits`
    [T, vocab] float32, behind each of the T `token_ids`. Divergence is
    KL(reference || logits) = sum of p (log p - log q)."""
    wanted = torch.tensor(token_ids[1:])
    log_p = reference[:-1].log_softmax(-1)
    log_q = logits[:-1].log_softmax(-1)
    nll = -log_q.gather(1, wanted[:, None]).double().sum()
    divergence = (log_p.exp() * (log_p - log_q)).double().sum()
    agreed = (log_p.argmax(-1) == log_q.argmax(-1)).sum()
    return Errors(len(wanted), float(nll), float(divergence), int(agreed))


def windows(token_ids: Sequence[int], length: int) -> list[Sequence[int]]:
    """Cuts into windows of `length`; a rest of less than half of one is left out, unless it is
    all there is."""
    cut = [token_ids[start : start + length] for start in range(0, len(token_ids), length)]
    return [w for w in cut if len(w) >= max(2, length // 2)] or [w for w in cut if len(w) >= 2]


def parse_variant(texts: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments of EngineConfig, and what is rounded to 8-bit floats: then the rest is float32.
    Raises ValueError, naming what is wrong."""
    rounded = [text for text in texts if text.startswith("fp8=")]
    settings = [text for text in texts if text not in rounded]
    if not rounded:
        return parse_settings(settings), ()
    parts = parse_parts(",".join(text.removeprefix("fp8=") for text in rounded))
    return parse_settings([*REFERENCE_SETTINGS, *settings]), parts


def course_text(language: str) -> str:
    """The sample course's materials in one language, one after the other."""
    paths = sorted(SAMPLE_COURSE.glob(f"*.{language}.md"))
    return "\n\n".join(path.read_text("utf-8") for path in paths)


@torch.inference_mode()
def compare_variants(
    model: Path, variants: Iterable[Sequence[str]], max_windows: int | None
) -> list[dict[str, Any]]:
    """Figures of the reference and of each variant, by language."""
    settings = [REFERENCE_SETTINGS, *variants]
    names = [REFERENCE, *(" ".join(variant) or "as served" for variant in settings[1:])]
    # Each holds one window: where memory is short, no cache is made that nobody uses.
    models = []
    for texts in settings:
        fields, parts = parse_variant(texts)
        config = engine_config(model, {"kv_cache_tokens": WINDOW, **fields})
        models.append(TappedModel(config, parts))
    results: list[dict[str, Any]] = []
    for language in LANGUAGES:
        sums = [Errors() for _ in models]
        token_ids = models[0].tokenizer.encode(course_text(language))
        for window in windows(token_ids, WINDOW)[:max_windows]:
            print(".", end="", file=sys.stderr, flush=True)
            # Some runners hand out memory that the next step writes to.
            reference = models[0].logits(window).clone()
            sums = [
                errors + window_errors(reference, tapped.logits(window), window)
                for errors, tapped in zip(sums, models, strict=True)
            ]
        results += [
            {"language": language, "variant": name, "dtype": tapped.info.dtype, **errors.figures()}
            for name, tapped, errors in zip(names, models, sums, strict=True)
        ]
    print(file=sys.stderr)
    return results


def as_table(results: Iterable[dict[str, Any]]) -> str:
    """A Markdown table."""
    rows = [
        "| text | tokens | weights | perplexity | divergence, nats | same likeliest token |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows += [
        f"| {r['language']} | {r['tokens']:,} | {r['variant']} | {r['perplexity']:.3f} | "
        f"{r['divergence']:.5f} | {r['agreement']:.2%} |"
        for r in results
    ]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="catalogue name, .gguf file or folder")
    parser.add_argument(
        "--variant",
        nargs="*",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="fields of EngineConfig or fp8=PARTS, none for what is served; may be given several "
        "times",
    )
    parser.add_argument("--max-windows", type=int, help="of each language; default: all")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    try:
        for variant in options.variant:
            parse_variant(variant)
    except ValueError as error:
        parser.error(str(error))
    model = find_model(options.model)
    results = compare_variants(model, options.variant or [()], options.max_windows)
    print(as_table(results))
    if options.json:
        figures = {
            "model": options.model,
            "window": WINDOW,
            "machine": machine_facts(["torch"]),
            "results": results,
        }
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
