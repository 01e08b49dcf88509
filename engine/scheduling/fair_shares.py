"""`FairShares`: how much of the engine each user had, so that the one who had least goes first."""

from __future__ import annotations

from collections import Counter

DECODE_WEIGHT = 2.0
"""A sampled token counts as so many prompt tokens, as in the paper's measurements."""

NUM_KEPT = 64
"""Users without a request whose counters may be kept though they are not ahead."""


class Account:
    """What a user had, in tokens. Owned by the engine thread."""

    __slots__ = ("num_tokens",)

    def __init__(self) -> None:
        self.num_tokens = 0.0


class FairShares:
    """Virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI
    2024). Owned by the engine thread.

    What is computed for a user is added to the user's counter. A user who comes back to the queue
    is lifted to the least counter in it: nobody saves up a share by waiting, and what was used
    while nobody else waited is not held against anybody. `debt` is what a user is ahead of the
    least counter in the queue; two users who always wait stay within a bounded difference."""

    def __init__(self) -> None:
        self._counters: dict[str, Account] = {}
        self._num_waiting: Counter[str] = Counter()
        self._num_unfinished: Counter[str] = Counter()
        self._level = 0.0
        self._last_user = ""
        """Who left the queue last."""

    def add(self, user: str) -> None:
        """A new request of the user."""
        self._num_unfinished[user] += 1

    def finish(self, user: str) -> None:
        """A request of the user has ended. Users without one are kept only while ahead, and nobody
        is once the engine has nothing to do."""
        self._num_unfinished[user] -= 1
        if self._num_unfinished[user] > 0:
            return
        del self._num_unfinished[user]
        self._level = level = self.level()
        if not self._num_unfinished:
            self._counters.clear()
            self._level = 0.0
        elif len(self._counters) > 2 * len(self._num_unfinished) + NUM_KEPT:
            self._counters = {
                user: account
                for user, account in self._counters.items()
                if account.num_tokens > level or user in self._num_unfinished
            }

    def wait(self, user: str) -> None:
        """A request of the user is put into the queue."""
        if not self._num_waiting[user]:
            account = self.account(user)
            account.num_tokens = max(account.num_tokens, self.level())
        self._num_waiting[user] += 1

    def leave(self, user: str) -> None:
        """A request of the user is taken out of the queue."""
        self._level = self.level()
        self._last_user = user
        self._num_waiting[user] -= 1
        if not self._num_waiting[user]:
            del self._num_waiting[user]

    def num_running(self, user: str) -> int:
        """Requests of the user that are not in the queue."""
        return self._num_unfinished[user] - self._num_waiting[user]

    def without_running(self) -> set[str]:
        """Users of whom nothing runs, though they wait."""
        return {user for user in self._num_waiting if self.num_running(user) == 0}

    def charge(self, user: str, num_tokens: float) -> None:
        """So much was computed for the user, or soon will be."""
        self.account(user).num_tokens += num_tokens

    def account(self, user: str) -> Account:
        """Where `charge` puts it; stays the user's as long as the user has a request."""
        account = self._counters.get(user)
        if account is None:
            account = self._counters[user] = Account()
        return account

    def level(self) -> float:
        """The least counter of a user in the queue; while it is empty, that of who left it last.
        Never falls."""
        waiting = [self._counters[user].num_tokens for user in self._num_waiting]
        least = min(waiting) if waiting else self._num_tokens(self._last_user)
        return max(self._level, least)

    def debt(self, user: str, level: float) -> float:
        """Tokens that the user is ahead of `level`."""
        return max(0.0, self._num_tokens(user) - level)

    def _num_tokens(self, user: str) -> float:
        account = self._counters.get(user)
        return 0.0 if account is None else account.num_tokens
