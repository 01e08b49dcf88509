"""The work that speed is measured with: what every engine that is compared is asked to do."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["prefill", "decode", "quote", "offline"]


@dataclass(frozen=True, slots=True)
class Work:
    """`num_sequences` at once, each with `context` tokens of random prompt. `prefill`: how fast
    the prompt is read, nothing else counts. `decode`: how fast `num_tokens` further tokens a
    sequence come once all of them have begun, in all. `quote`: decode of one sequence whose
    answer repeats a passage of its prompt, which is text and `context` is not used. `offline`:
    prompts of half to all of `context` tokens as one batch, from the first prompt token to the
    last answer."""

    name: str
    kind: Kind
    num_sequences: int
    context: int
    num_tokens: int

    def shortened(self) -> Work:
        """The same in small, to see that everything runs."""
        return replace(
            self,
            num_sequences=min(self.num_sequences, 4),
            context=min(self.context, 64),
            num_tokens=min(self.num_tokens, 8),
        )


WORKS = {
    work.name: work
    for work in (
        Work("prefill", "prefill", 1, 1000, 0),
        Work("decode-empty", "decode", 1, 1, 128),
        Work("decode-650", "decode", 1, 650, 64),
        Work("decode-16", "decode", 16, 600, 64),
        Work("quote", "quote", 1, 0, 96),
    )
}

TITLES = {
    "prefill": "prefill, one prompt of 1,000 tokens, tok/s",
    "decode-empty": "decode alone from an empty context, tok/s",
    "decode-650": "decode alone at 650 tokens, tok/s",
    "decode-16": "decode of 16 sequences at 600 tokens, tok/s in all",
    "quote": "decode alone of an answer that quotes its prompt, tok/s",
}

QUOTED_PASSAGE = (
    "Lab reports are due on Friday at noon, one week after the session. Send one PDF file per "
    "group, at most six pages long, with the names of all members on the first page. Late reports "
    "lose ten points for each day that has begun, and after four days they are not graded at all. "
    "Raw measurements belong into an appendix, as a table with units; plots need labelled axes and "
    "error bars. Whoever was ill on the day of the session brings a certificate within a week and "
    "gets another date from the laboratory office, in room 214 on the second floor."
)


_NUM_BEGUN = len("Lab reports are due on Friday at noon, one week after the session.")


def quote_prompt() -> str:
    """A ChatML conversation whose second answer has begun to repeat the first, which is
    `QUOTED_PASSAGE`: even a very small model goes on with it word for word."""
    return (
        f"<|im_start|>user\n{QUOTED_PASSAGE}\n\nRepeat this text.<|im_end|>\n"
        f"<|im_start|>assistant\n{QUOTED_PASSAGE}<|im_end|>\n"
        "<|im_start|>user\nAgain, please.<|im_end|>\n"
        f"<|im_start|>assistant\n{QUOTED_PASSAGE[:_NUM_BEGUN]}"
    )


def expected_quote() -> str:
    """How the answer to `quote_prompt` goes on where the model quotes."""
    return QUOTED_PASSAGE[_NUM_BEGUN:]


def quoted_share(text: str, expected: str) -> float:
    """The part of `text` from its beginning that is also how `expected` begins, 0 to 1."""
    pairs = zip(text, expected, strict=False)
    num_equal = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return num_equal / len(text) if text else 0.0


def random_prompts(
    seed: int, num_prompts: int, length: int, vocab_size: int, excluded: Collection[int] = ()
) -> list[tuple[int, ...]]:
    """Prompts of `length` token ids below `vocab_size`, none of `excluded`; the same for the
    same seed, and with no prefix in common for different ones."""
    generator = random.Random(seed)
    barred = set(excluded)
    allowed = [token_id for token_id in range(vocab_size) if token_id not in barred]
    return [tuple(generator.choices(allowed, k=length)) for _ in range(num_prompts)]


def chosen_works(names: Sequence[str], *, short: bool) -> list[Work]:
    """The works `names`, or all of them when there are none."""
    works = [WORKS[name] for name in names or WORKS]
    return [work.shortened() for work in works] if short else works
