"""`Script`: what the scripted engine answers, and the runner that plays it. The engine around it
is the real one: real scheduler, block pool, detokenizer, stop strings and thread. No torch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.execution.runner import Sample, StepResult, SynchronousRunner
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.text.byte_tokenizer import ByteTokenizer
from engine.types import RequestId, SamplingParams, TokenLogprobs

Answer = str | Sequence[bytes | int]
"""A text, cut into tokens of `Script.token_chars` characters; or tokens one by one: the bytes
that a token adds to the text, or the id of a special token (such as the tokenizer's EOS)."""


def echo(prompt: str) -> Answer:
    """The default script: repeats what the last user turn of the prompt says."""
    turns = prompt.split("<|im_start|>user\n")
    return f"You asked: {turns[-1].split('<|im_end|>')[0].strip()}"


@dataclass(frozen=True, slots=True)
class Script:
    """`answer` maps the prompt's text (template applied) to the answer; EOS follows its end.
    `token_s` is how long a decode step takes, `prefill_s` a step with prefill in it;
    `fail_after` lets each request fail after so many of its tokens."""

    answer: Callable[[str], Answer] = echo
    token_s: float = 0.0
    prefill_s: float = 0.0
    token_chars: int = 4
    fail_after: int | None = None


class ScriptedRunner(SynchronousRunner):
    """Implements `ModelRunner` by a script. Owned by the engine thread.

    A request's i-th output token, counted from the end of its own prompt, is the i-th token of
    its answer: so preemption and continuation go on where the answer stood."""

    def __init__(self, script: Script, tokenizer: ByteTokenizer) -> None:
        self._script = script
        self._tokenizer = tokenizer
        self._answers: dict[RequestId, list[int]] = {}
        self._eos = tokenizer.special_tokens["<|im_end|>"]

    def execute(self, plan: SchedulerOutput) -> StepResult:
        """Takes as long as the script says and plays one token for each sequence that samples."""
        # This stands for the time that a device computes; the engine thread waits for that too.
        pause_s = self._script.prefill_s if plan.num_prefill_tokens else self._script.token_s
        if pause_s > 0.0:
            time.sleep(pause_s)
        samples: list[Sample] = []
        failures: dict[RequestId, str] = {}
        for item in plan.scheduled:
            if not item.samples:
                continue
            sequence = item.sequence
            index = sequence.num_tokens - len(sequence.request.prompt_token_ids)
            token_ids = sequence.forced_token_ids[: 1 + len(item.draft_token_ids)]
            if not token_ids:
                answer = self._answer(sequence)
                token_ids = (answer[index] if index < len(answer) else self._eos,)
            logprobs = [_logprobs(one, sequence.request.params) for one in token_ids]
            samples.append(Sample(token_ids, tuple(itertools.chain.from_iterable(logprobs))))
            if self._script.fail_after is not None and index >= self._script.fail_after:
                failures[sequence.request_id] = "The model failed while it was answering."
        return StepResult(samples, failures)

    def forget(self, request_id: RequestId) -> None:
        """Drops the request's answer."""
        self._answers.pop(request_id, None)

    def _answer(self, sequence: EngineSequence) -> list[int]:
        answer = self._answers.get(sequence.request_id)
        if answer is None:
            prompt = self._tokenizer.decode_all(sequence.request.prompt_token_ids)
            answer = self._token_ids(self._script.answer(prompt))
            self._answers[sequence.request_id] = answer
        return answer

    def _token_ids(self, answer: Answer) -> list[int]:
        if isinstance(answer, str):
            size = self._script.token_chars
            answer = [
                answer[start : start + size].encode() for start in range(0, len(answer), size)
            ]
        return [
            token if isinstance(token, int) else self._tokenizer.piece(token) for token in answer
        ]


def _logprobs(token_id: int, params: SamplingParams) -> tuple[TokenLogprobs, ...]:
    """A script leaves no doubt: what it says has probability 1, and nothing stands beside it."""
    if params.logprobs is None:
        return ()
    return (TokenLogprobs(token_id, 0.0, ((token_id, 0.0),)[: params.logprobs]),)
