"""Shapes of steps: which are captured, and what a step is padded to."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.execution.step_shapes import MAX_CHUNKS, StepShape, StepShapes, single_rows


@pytest.mark.parametrize("max_rows", [1, 3, 8, 9, 64, 100, 256, 300, 1000])
def test_single_rows_reach_as_far_as_asked_and_waste_little(max_rows: int) -> None:
    sizes = single_rows(max_rows)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] >= max_rows
    assert all(size < max_rows for size in sizes[:-1])
    for smaller, larger in pairwise(sizes):
        assert larger <= 2 * smaller
        assert larger - smaller <= max(8, larger // 8)


def test_the_largest_comes_first_and_nothing_twice() -> None:
    shapes = StepShapes(100, 8192, 128)
    first, later = shapes.at_start(), shapes.later()
    assert [shape.num_single for shape in first] == [104, 32, 8, 1]
    assert len({*first, *later}) == len(first) + len(later)
    assert sorted({shape.num_chunk_rows for shape in later})[-2:] == [2048, 8192]
    assert max(shape.num_samples for shape in (*first, *later)) == shapes.max_samples


def test_no_chunks_are_captured_beyond_what_a_step_may_have() -> None:
    assert max(shape.num_chunk_rows for shape in StepShapes(64, 300, 128).later()) == 256


def test_a_step_is_padded_to_the_smallest_captured_shape() -> None:
    shapes = StepShapes(64, 8192, 128)
    everything = {*shapes.at_start(), *shapes.later()}
    assert shapes.choose(StepShape(17, 0, 0, 17), 0, everything) == StepShape(24, 0, 0, 24)
    few = set(shapes.at_start())
    assert shapes.choose(StepShape(2, 0, 0, 2), 0, few) == StepShape(8, 0, 0, 8)
    padded = shapes.choose(StepShape(3, 300, 4, 5), 2, everything)
    assert padded == StepShape(8, 384, 3 + MAX_CHUNKS, 8 + MAX_CHUNKS)
    assert shapes.choose(StepShape(0, 20, 1, 1), 1, everything).num_single == 0


def test_a_step_that_uses_nearly_all_of_its_budget_is_padded_to_it() -> None:
    shapes = StepShapes(256, 8192, 128)
    everything = {*shapes.at_start(), *shapes.later()}
    for num_chunk_rows, padded in ((8192, 8192), (7680, 8192), (7679, 7679), (2049, 2049)):
        exact = StepShape(200, num_chunk_rows, 80, 215)
        assert shapes.choose(exact, 15, everything).num_chunk_rows == padded
    assert max(shape.num_chunk_rows for shape in StepShapes(64, 2048, 128).later()) == 2048


def test_what_fits_no_captured_shape_runs_as_it_is() -> None:
    shapes = StepShapes(64, 8192, 128)
    everything = {*shapes.at_start(), *shapes.later()}
    for exact, num_chunks in (
        (StepShape(3, 3000, 30, 5), 2),
        (StepShape(3, 1000, 50, 36), MAX_CHUNKS + 1),
    ):
        assert shapes.choose(exact, num_chunks, everything) == exact
    alone = StepShape(2, 0, 0, 2)
    assert shapes.choose(alone, 0, set()) == alone


def test_a_shape_has_room_for_every_step_that_is_padded_to_it() -> None:
    """Tiles: chunks that end just behind a tile's edge need the most."""
    shapes = StepShapes(64, 8192, 16)
    everything = {*shapes.at_start(), *shapes.later()}
    for num_chunks in (1, 2, MAX_CHUNKS):
        lengths = [17] * num_chunks
        rows = sum(lengths)
        tiles = sum(-(-length // 16) for length in lengths)
        padded = shapes.choose(StepShape(5, rows, tiles, 5 + num_chunks), num_chunks, everything)
        assert padded.num_tiles >= tiles
        assert padded.num_samples >= 5 + num_chunks
        assert padded.num_chunk_rows >= rows
