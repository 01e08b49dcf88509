"""The server with a model that quotes: it answers with the first sentence of its best passage,
names it as [1], and names a ninth passage, which it was never given.
`python -m tests.e2e.browser.quoting_server [options of the server]`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from engine.api import Engine, Script, create_scripted_engine
from server.__main__ import main
from server.config import ServerConfig
from server.console import Console


def quote(prompt: str) -> str:
    """The first sentence in the passage that is numbered 1."""
    turn = prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
    passage = re.split(r"^===", re.split(r"^\[1\] .*\n", turn, flags=re.M)[-1], flags=re.M)[0]
    sentence = re.search(r"^\w[^.。\n]*(?:\.(?!\s)[^.。\n]*)*[.。]", passage, flags=re.M)
    return f"{sentence[0]} [1] [9]" if sentence else "There is no sentence. [9]"


def make_engine(config: ServerConfig, console: Console) -> Engine:
    console.say("Answers quote their first passage.")
    return create_scripted_engine(
        config.engine_config(Path("scripted"), served_name="quoting"),
        Script(answer=quote, token_s=config.scripted_token_s),
    )


if __name__ == "__main__":
    sys.exit(main(make_engine=make_engine))
