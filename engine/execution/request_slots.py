"""`RequestSlots`: which running request has which slot of the GPU's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.scheduling.sequence import Sequence
from engine.types import RequestId


class RequestSlots:
    """Slots 0 … num_slots-1, and what of each holder's block table is on the GPU already. Owned by
    the engine thread. No torch.

    A slot that was left can be given away at once, also while steps in flight still compute its
    last holder: the GPU runs steps in order, and whoever enters writes before it reads."""

    def __init__(self, num_slots: int, max_blocks: int) -> None:
        self.num_slots = num_slots
        self._max_blocks = max_blocks
        self._free = list(range(num_slots - 1, -1, -1))
        self._slots: dict[RequestId, int] = {}
        self._num_uploaded = [0] * num_slots
        self._places: list[int] = []
        self._blocks: list[int] = []

    def enter(
        self, sequences: Iterable[Sequence], on_enter: Callable[[int, Sequence], None]
    ) -> list[int]:
        """The slots of `sequences`, with new blocks of their tables queued for upload. One that
        had none gets one, and `on_enter` is told."""
        taken, num_uploaded = self._slots, self._num_uploaded
        slots = []
        for sequence in sequences:
            slot = taken.get(sequence.request_id)
            if slot is None:
                slot = taken[sequence.request_id] = self._free.pop()
                num_uploaded[slot] = 0
                on_enter(slot, sequence)
            slots.append(slot)
            blocks = sequence.table.blocks
            first = num_uploaded[slot]
            if len(blocks) != first:
                start = slot * self._max_blocks
                self._places += range(start + first, start + len(blocks))
                self._blocks += blocks[first:]
                num_uploaded[slot] = len(blocks)
        return slots

    def leave(self, request_id: RequestId) -> int | None:
        """Takes the slot back, and says which it was; None if there was none."""
        slot = self._slots.pop(request_id, None)
        if slot is not None:
            self._free.append(slot)
        return slot

    def take_entries(self) -> tuple[list[int], list[int]]:
        """What is queued since the last call: places in the flat table of all slots
        (slot * max_blocks + index) and the blocks there."""
        places, blocks = self._places, self._blocks
        self._places, self._blocks = [], []
        return places, blocks
