"""`Ledger`: what is written down when a generation has ended: metrics, the account's tokens, the
pace of the queue."""

from __future__ import annotations

import time
from dataclasses import dataclass

from engine.api import Engine, Finish, OutputStream, Usage
from server.service.admission import Admission
from server.service.metrics import Metrics
from server.service.prices import PriceList


@dataclass(frozen=True, slots=True)
class Entry:
    """One generation. `shares_prompt`: it is a further answer to a prompt that another one pays
    for, as replies have it."""

    account: str
    shares_prompt: bool = False


class Ledger:
    """Owned by the event loop's thread."""

    def __init__(
        self, engine: Engine, admission: Admission, metrics: Metrics, prices: PriceList | None
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._metrics = metrics
        self._prices = prices

    def ended(self, entry: Entry, finish: Finish) -> None:
        """A generation of the engine's has ended. Once for each."""
        self._admission.charge(entry.account, finish.usage.completion_tokens)
        self._admission.queue.ended(time.monotonic(), is_waiting=self._is_waiting)
        self.count(entry, finish)

    def count(self, entry: Entry, finish: Finish) -> None:
        """The metrics alone: for one that the engine never had."""
        usage = finish.usage
        if entry.shares_prompt:
            usage = Usage(completion_tokens=usage.completion_tokens)
        self._metrics.finished(finish, None if self._prices is None else self._prices.cost(usage))

    def ends_later(self, entry: Entry, stream: OutputStream) -> None:
        """Nobody reads the generation any more: books it when the engine has ended it. The engine
        ends every request, so this keeps nothing for long."""

        def on_ready() -> None:
            output = stream.take()
            if output is not None and output.finish is not None:
                self.ended(entry, output.finish)

        stream.unfollow()
        stream.follow(on_ready)

    def observe_queue(self) -> None:
        """A look at whether somebody waits."""
        self._admission.queue.observe(time.monotonic(), is_waiting=self._is_waiting)

    @property
    def _is_waiting(self) -> bool:
        return self._engine.stats.num_waiting > 0
