"""Measures what prompt-lookup speculation does to one stream: course answers, and free text.

    .venv/bin/python -m scripts.bench_speculation [MODEL] [--repeat 3] [--only en0] [--json FILE]

MODEL is a catalogue name (fetched before), a .gguf file or a folder. The prompts are those that
the course application makes of the answerable evaluation questions about the sample course, and,
as a control that quotes nothing, questions without a course. Each is answered greedily by two
engines in this process, one with speculation and one without, in turn and alone, so that whatever
else the machine does meets both. Measured is decoding: from an answer's first token to its end.
Speculation must change nothing: where the two answers differ both are shown, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from engine.api import (
    Engine,
    EngineState,
    EngineStats,
    Finish,
    FinishDetail,
    FinishType,
    GenerationRequest,
    ModelInfo,
    OutputStream,
    RequestId,
    RequestOutput,
    SamplingParams,
    Tokenizer,
    create_engine,
)
from scripts.engine_settings import engine_config, find_model, parse_settings
from scripts.eval_answers import MAX_TOKENS, QUESTION_FILES, Question, ask
from server.app.factory import create_app
from server.config import DEFAULT_MODEL, ServerConfig
from server.lifespan import lifespan
from server.service.messages import ChatMessage

CONTROL = {
    "free1": "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "free2": "Explain why the sky is blue to a child.",
    "free3": "Give me some advice on how to prepare for a long walk in the mountains.",
    "free4": "Describe your favourite season and what people do in it.",
    "free5": "请写一段话,介绍春天的公园。",
    "free6": "为什么要学习编程?请谈谈你的看法。",
}
COURSE, FREE = "course answers", "free text"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine is given."""

    id: str
    kind: str
    token_ids: tuple[int, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """One answer: its tokens, and the seconds from the first to the last of them."""

    token_ids: tuple[int, ...]
    num_timed: int
    seconds: float
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt's figures, over all repeats. `speedup`: median of the pairs of runs."""

    id: str
    kind: str
    prompt_tokens: int
    tokens: int
    plain_tok_s: float
    speculative_tok_s: float
    speedup: float
    drafted: int
    accepted: int
    is_same: bool


class PromptRecorder:
    """Implements `Engine` around one that has started: keeps the prompts it is given and answers
    each with nothing, so that an application tells its prompts and no time goes into answers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.prompts: list[tuple[int, ...]] = []

    @property
    def model(self) -> ModelInfo:
        return self._engine.model

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def state(self) -> EngineState:
        return self._engine.state

    @property
    def stats(self) -> EngineStats:
        return self._engine.stats

    @property
    def num_requests(self) -> int:
        return 0

    @property
    def max_requests(self) -> int:
        return self._engine.max_requests

    async def start(self) -> None:
        """It has started."""

    @asynccontextmanager
    async def generate(self, request: GenerationRequest) -> AsyncIterator[OutputStream]:
        self.prompts.append(request.prompt_token_ids)
        stream = OutputStream(request.request_id)
        end = Finish(FinishDetail(FinishType.EOS))
        stream.put(RequestOutput(request.request_id, finish=end))
        yield stream

    def abort(self, request_id: RequestId, detail: FinishType = FinishType.CANCELLED) -> None:
        """Nothing runs."""

    def queue_position(self, request_id: RequestId) -> int | None:
        return None

    def watch_steps(self, on_step: Callable[[float, int], None]) -> None:
        """It makes none."""

    async def wait_failed(self) -> str:
        return await self._engine.wait_failed()

    async def shutdown(self, grace_s: float) -> None:
        """Whoever started the engine ends it."""


async def collect_prompts(engine: Engine, only: str, control_tokens: int) -> list[Prompt]:
    """What the course application asks the model for each question that begins with `only`, and
    the control's questions. Those that it answers without the model are left out."""
    recorder = PromptRecorder(engine)
    prompts = []
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(ServerConfig(data_dir=Path(folder)), recorder)
        async with lifespan(app):
            for path in QUESTION_FILES:
                for question in msgspec.json.decode(path.read_bytes(), type=list[Question]):
                    if question.source is None or not question.id.startswith(only):
                        continue
                    recorder.prompts.clear()
                    await ask(app, question)
                    prompts += [
                        Prompt(question.id, COURSE, token_ids, MAX_TOKENS)
                        for token_ids in recorder.prompts
                    ]
            for name, text in CONTROL.items():
                made = await app.service.generation.prepare_chat([ChatMessage("user", text)])
                prompts.append(Prompt(name, FREE, made.token_ids, control_tokens))
    return prompts


async def decode(engine: Engine, prompt: Prompt) -> Decoded:
    """One greedy answer, alone."""
    before = engine.stats
    request = GenerationRequest(
        RequestId(prompt.id),
        prompt.token_ids,
        SamplingParams(temperature=0.0, max_tokens=prompt.max_tokens),
    )
    token_ids: list[int] = []
    first_s, num_first = 0.0, 0
    async with engine.generate(request) as stream:
        async for output in stream:
            token_ids += output.token_ids
            if output.token_ids and not num_first:
                first_s, num_first = time.perf_counter(), len(output.token_ids)
    after = engine.stats
    return Decoded(
        tuple(token_ids),
        len(token_ids) - num_first,
        time.perf_counter() - first_s,
        after.drafted_tokens - before.drafted_tokens,
        after.accepted_tokens - before.accepted_tokens,
    )


async def measure(plain: Engine, speculative: Engine, prompt: Prompt, repeat: int) -> Line | None:
    """Both engines in turn; None for an answer with nothing to time."""
    pairs = []
    for turn in range(repeat):
        engines = (plain, speculative) if turn % 2 == 0 else (speculative, plain)
        one, other = [await decode(engine, prompt) for engine in engines]
        without, with_drafts = (one, other) if turn % 2 == 0 else (other, one)
        pairs.append((without, with_drafts))
    differing = {run.token_ids for pair in pairs for run in pair}
    if len(differing) > 1:
        texts = "\n  ".join(repr(plain.tokenizer.decode(tokens)) for tokens in differing)
        print(f"{prompt.id}: the answers differ\n  {texts}")
    if min(min(a.num_timed, b.num_timed) for a, b in pairs) == 0:
        return None
    return Line(
        prompt.id,
        prompt.kind,
        len(prompt.token_ids),
        len(pairs[0][0].token_ids),
        _speed(a for a, _ in pairs),
        _speed(b for _, b in pairs),
        statistics.median(_speed([b]) / _speed([a]) for a, b in pairs),
        sum(b.drafted for _, b in pairs),
        sum(b.accepted for _, b in pairs),
        len(differing) == 1,
    )


def _speed(runs: Iterable[Decoded]) -> float:
    """Tokens per second of decoding."""
    return statistics.median(run.num_timed / run.seconds for run in runs)


def report(lines: list[Line]) -> dict[str, Any]:
    """Prints the table, and returns each kind's median and worst."""
    print(f"\n{'':8} {'prompt':>6} {'tokens':>6} {'plain':>8} {'with':>8} {'faster':>7}  drafts")
    for line in lines:
        print(
            f"{line.id:8} {line.prompt_tokens:6} {line.tokens:6} {line.plain_tok_s:8.1f} "
            f"{line.speculative_tok_s:8.1f} {line.speedup:7.2f}  {line.accepted}/{line.drafted}"
        )
    summary: dict[str, Any] = {}
    for kind in (COURSE, FREE):
        of_kind = [line for line in lines if line.kind == kind]
        if not of_kind:
            continue
        worst = min(of_kind, key=lambda line: line.speedup)
        summary[kind] = {
            "prompts": len(of_kind),
            "plain_tok_s": statistics.median(line.plain_tok_s for line in of_kind),
            "speculative_tok_s": statistics.median(line.speculative_tok_s for line in of_kind),
            "median_speedup": statistics.median(line.speedup for line in of_kind),
            "worst_speedup": worst.speedup,
            "worst": f"{worst.id} ({worst.tokens} tokens)",
        }
        print(f"\n{kind}:")
        for name, value in summary[kind].items():
            print(f"  {name:18} {round(value, 2) if isinstance(value, float) else value}")
    return summary


async def run(model: Path, settings: dict[str, Any], given: argparse.Namespace) -> None:
    """Starts both engines, measures and reports."""
    config = engine_config(model, {"kv_cache_tokens": 16_384, **settings})
    plain = create_engine(replace(config, speculation="off"))
    speculative = create_engine(replace(config, speculation="auto"))
    try:
        await plain.start()
        await speculative.start()
        prompts = await collect_prompts(plain, given.only, given.control_tokens)
        for engine in (plain, speculative):  # the first steps of a process are slow
            await decode(engine, prompts[-1])
        lines = []
        for prompt in prompts:
            line = await measure(plain, speculative, prompt, given.repeat)
            if line is not None:
                lines.append(line)
                print(f"{line.id} {line.speedup:.2f}", flush=True)
    finally:
        await plain.shutdown(0.0)
        await speculative.shutdown(0.0)
    summary = report(lines)
    if given.json:
        kept = {"model": model.stem, **summary, "lines": [asdict(line) for line in lines]}
        given.json.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", "utf-8")
    if not all(line.is_same for line in lines):
        raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL)
    parser.add_argument("--repeat", type=int, default=3, help="times that each answer is made")
    parser.add_argument("--only", default="", help="only questions whose id begins so")
    parser.add_argument("--control-tokens", type=int, default=96, help="length of the control's")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="engine fields")
    parser.add_argument("--json", type=Path, help="where the figures go")
    given = parser.parse_args()
    asyncio.run(run(find_model(given.model), parse_settings(given.set), given))


if __name__ == "__main__":
    main()
