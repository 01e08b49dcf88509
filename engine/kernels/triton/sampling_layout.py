"""Where the sampling kernels find things: the words of a slot's parameters, and the columns of a
row's scratch."""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl

NUM_PARAM_WORDS = 16
"""int64 words a slot: 128 bytes, one cache line."""

SEED = tl.constexpr(0)
"""mix(seed) of `keyed_noise.draw_key`."""
FLAGS = tl.constexpr(1)
TEMPERATURE = tl.constexpr(2)
"""This and the next five are the bits of float64 numbers. The temperature is one of float32."""
TOP_P = tl.constexpr(3)
LOG_MIN_P = tl.constexpr(4)
REPETITION = tl.constexpr(5)
FREQUENCY = tl.constexpr(6)
PRESENCE = tl.constexpr(7)
TOP_K = tl.constexpr(8)
"""0 is off; at most the size of the vocabulary."""
MIN_END = tl.constexpr(9)
"""The blocked tokens cannot be drawn for positions below."""
NUM_BIASES = tl.constexpr(10)
NUM_BLOCKED = tl.constexpr(11)
FORCED_FROM = tl.constexpr(12)
"""The position of the first forced token."""
NUM_FORCED = tl.constexpr(13)
PARAM_WORDS = tl.constexpr(NUM_PARAM_WORDS)

IS_GREEDY = tl.constexpr(1)
IS_PENALIZED = tl.constexpr(2)
IS_ADJUSTED = tl.constexpr(4)
"""The logits are changed before they are read: penalties, biases or blocked tokens."""
WANTS_LOGPROBS = tl.constexpr(8)
IS_FORCED = tl.constexpr(16)
"""The first tokens of the output are given."""

MAX_BIASES = 1024
"""Of one slot: `SamplingParams.MAX_LOGIT_BIASES`."""
MAX_BLOCKED = 512
"""Of one slot: `SamplingParams.MAX_STOP_TOKEN_IDS`, and as many that end every sequence."""
MAX_FORCED = 1024
"""Of one slot: `GenerationRequest.MAX_FORCED_TOKENS`."""
MAX_COUNT = 32_767
"""Token counts are int16: 0 is a token that the sequence has not, else 1 + how often its output
has it. They stop here."""

NUM_TOP = 20
"""Alternatives that a row with log probabilities gets (`SamplingParams.MAX_LOGPROBS`)."""
LOGPROB_WORDS = 1 + 2 * NUM_TOP
"""int32 words a row: the bits of the token's log probability, of those of the likeliest tokens,
and then their ids."""


@dataclass(frozen=True, slots=True)
class SamplingLayout:
    """Sizes that are fixed when the kernels are compiled.

    A row is read in `num_tiles` tiles of `tile` tokens, each by one program; a tile in parts of
    `part` tokens, whose largest logits bound the k-th largest of the row; and in chunks of `chunk`
    tokens where a program works through more than its registers hold. All powers of two. A row's
    candidates are listed if they are not more than `list_size`. `head_depth`: that of
    `engine.execution.logit_rows`."""

    vocab_size: int
    tile: int = 4096
    part: int = 256
    chunk: int = 1024
    list_size: int = 16384
    head_depth: float = 12.0

    def __post_init__(self) -> None:
        sizes = (self.part, self.chunk, self.tile)
        if any(size & (size - 1) for size in sizes) or not self.part <= self.tile >= self.chunk:
            raise ValueError(f"tile, part and chunk must be powers of two that fit: {self}")

    @property
    def num_tiles(self) -> int:
        return triton.cdiv(self.vocab_size, self.tile)

    @property
    def num_parts(self) -> int:
        return self.num_tiles * (self.tile // self.part)

    @property
    def float_width(self) -> int:
        """Columns of float32 scratch: two for the row, four for each tile, one for each part."""
        return 2 + 4 * self.num_tiles + self.num_parts


LARGEST = tl.constexpr(0)
"""Column of the largest logit, after adjustment."""
CUT = tl.constexpr(1)
"""Column of a logit below which nothing is needed (see `sampling_scan`)."""
TILES = tl.constexpr(2)
"""Groups of `num_tiles` columns begin here, in the order of the next five."""
TILE_BEST = tl.constexpr(0)
"""The largest rough score of a tile's head."""
TILE_MASS = tl.constexpr(1)
"""The tile's part of the tail's mass."""
TILE_RAW = tl.constexpr(2)
"""The largest logit as the model gave it; plus infinity for a NaN."""
TILE_SUM = tl.constexpr(3)
"""The sum of exp(logit - largest of the tile), as the model gave them."""
PART_MAX = tl.constexpr(4)
"""The largest logit of each part, after adjustment; plus infinity for a NaN."""

INT_WIDTH = 4
"""Columns of int32 scratch."""
INTS = tl.constexpr(INT_WIDTH)
ARRIVED = tl.constexpr(0)
"""Tiles that have been scanned; 0 between launches."""
LISTED = tl.constexpr(1)
"""Listed candidates."""
FAILED = tl.constexpr(2)
"""Whether the model's logits were not finite."""
