"""The server with a model that writes a long answer: 20,000 characters with 40 code blocks (8 of
them in lists), 200 formulas, three tables and sentences of its sources, 200 tokens a second, four
characters in a token. `python -m tests.e2e.browser.writing_server [options of the server]`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console

NUM_CHARS = 20_000
NUM_FENCES = 40
NUM_FORMULAS = 200
TOKEN_S = 0.0044
"""For 200 tokens a second: with what the engine does around a step, one takes about 5 ms."""

OPTIONS = (
    *("--scripted", "--default-max-tokens", "6000", "--max-model-len", "16384"),
    *("--not-found-score", "0.01", "--scripted-token-s"),
)
"""Of a server that plays it, the last without its value: the whole answer fits."""

LONG_QUESTION = "When are office hours?"

_CODE = (
    "python", "def step_{n}(values, rate):\n    # Moves against the gradient.\n    total = 0.0\n"
    '    for index, value in enumerate(values):\n        total += rate * value ** {n}\n'
    '    return f"step {n}: {{total:.3f}}"\n',
    "cpp", "int count_{n}(const std::vector<int>& all) {{\n  int found = 0;\n"
    "  for (int one : all) if (one % {n} == 0) ++found;\n  return found; // never negative\n}}\n",
    "sql", "SELECT name, count(*) AS n\nFROM runs_{n}\nWHERE loss < 0.{n} AND name LIKE 'a%'\n"
    "GROUP BY name ORDER BY n DESC;\n",
    "json", '{{"name": "run {n}", "steps": [1, 2, {n}], "done": true, "rate": 0.0{n}}}\n',
)  # fmt: skip
_WORDS = (
    "The rule follows from the chain of partial derivatives, each of which is known.",
    "梯度下降每一步都沿着负梯度方向移动，步长由学习率决定。",
    "A **larger rate** takes fewer steps, and `diverges` where the curve is steep.",
    "See [the notes][notes] for a proof that needs *only* the mean value theorem.",
)
_FORMULAS = (
    r"x_{{{n}}}^2 + y_{{{n}}}",
    r"\frac{{\partial L}}{{\partial w_{{{n}}}}}",
    r"\sum_{{i=1}}^{{{n}}} \alpha_i",
    r"\sqrt{{1 + {n}t}}",
    r"\hat{{\theta}}_{{{n}}}",
)


def long_answer(sentences: Sequence[str] = ()) -> str:
    """The same text each time; `sentences` of its sources stand in it, each once."""
    numbers = count(1)
    said = iter(sentences)
    inline = (_FORMULAS[n % len(_FORMULAS)].format(n=n) for n in count(1))
    parts: list[str] = []
    for section in range(1, 17):
        words = [*islice(said, 1), *(_WORDS[(section + n) % len(_WORDS)] for n in range(2))]
        parts += [f"## Part {section}", f"{' '.join(words)} Here ${next(inline)}$ is small."]
        parts += [_fence(next(numbers)), f"So ${next(inline)}$ and \\({next(inline)}\\) agree."]
        parts += [f"$$\n{next(inline)} = {next(inline)}\n$$", _fence(next(numbers))]
        if section % 5 == 0:
            parts.append(_table(inline))
        if section % 4 == 0:
            parts.append(_list(inline, numbers))
    parts.append("[notes]: https://example.org/notes")
    text = "\n\n".join(parts)
    # What lacks in formulas and characters, in a last long paragraph and its words.
    lacking = NUM_FORMULAS - num_formulas(text)
    text += "\n\n" + ", ".join(f"${next(inline)}$" for _ in range(lacking)) + ".\n\n"
    filler = " ".join(islice((word for _ in count() for word in _WORDS), 400))
    return text + filler[: NUM_CHARS - len(text)].rstrip()


def num_formulas(text: str) -> int:
    """How many formulas stand in an answer of this module."""
    return len(re.findall(r"\$\$[^$]+\$\$|\$[^$\n]+\$|\\\(.+?\\\)", text))


def _fence(n: int) -> str:
    kind = n % (len(_CODE) // 2) * 2
    return f"```{_CODE[kind]}\n{_CODE[kind + 1].format(n=n)}```"


def _list(inline: Iterator[str], numbers: Iterator[int]) -> str:
    """A list of six long items; two of them hold code."""
    items = []
    for item in range(1, 7):
        text = f"{item}. {_WORDS[item % len(_WORDS)]} It holds ${next(inline)}$"
        text += f" and ${next(inline)}$ as well."
        if item in (2, 5):
            fence = _fence(next(numbers)).replace("\n", "\n   ")
            text += f"\n\n   {fence}"
        items.append(text)
    return "\n".join(items)


def _table(inline: Iterator[str]) -> str:
    rows = [f"| {n} | ${next(inline)}$ | `a|b` | {_WORDS[n % 2][:24]} |" for n in range(6)]
    return "\n".join(["| n | formula | code | words |", "| -: | :-: | - | - |", *rows])


def write(prompt: str) -> str:
    """The long answer, with sentences of the passages that the prompt holds."""
    turn = prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    found = re.findall(r"^(\w[^.。\n|]{30,160}[.。])", turn, flags=re.M)
    return long_answer(list(dict.fromkeys(found))[:12])


def make_engine(config: ServerConfig, console: Console) -> Engine:
    console.say("Answers are long.")
    return create_scripted_engine(
        config.engine_config(Path("scripted"), served_name="writing"),
        Script(answer=write, token_s=config.scripted_token_s),
    )


if __name__ == "__main__":
    sys.exit(main(make_engine=make_engine))
