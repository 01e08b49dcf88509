from __future__ import annotations

from engine.scheduling.fair_shares import NUM_KEPT, FairShares


def debts(shares: FairShares, *users: str) -> list[float]:
    level = shares.level()
    return [shares.debt(user, level) for user in users]


def come(shares: FairShares, user: str) -> None:
    shares.add(user)
    shares.wait(user)


def test_who_was_served_more_is_ahead() -> None:
    shares = FairShares()
    for user in "ab":
        come(shares, user)
    shares.charge("a", 300.0)
    shares.charge("b", 100.0)
    assert debts(shares, "a", "b") == [200.0, 0.0]


def test_a_newcomer_gets_no_credit_for_the_time_before() -> None:
    """Else a user who comes late would have the engine alone until level with the others."""
    shares = FairShares()
    come(shares, "old")
    shares.charge("old", 5000.0)
    come(shares, "new")
    assert debts(shares, "old", "new") == [0.0, 0.0]
    shares.charge("old", 100.0)
    assert debts(shares, "old", "new") == [100.0, 0.0]


def test_who_leaves_the_queue_and_comes_back_is_lifted() -> None:
    shares = FairShares()
    for user in "ab":
        come(shares, user)
    shares.leave("a")
    for _ in range(10):
        shares.charge("b", 100.0)
    come(shares, "a")
    assert debts(shares, "a", "b") == [0.0, 0.0]


def test_leaving_does_not_wipe_out_what_one_is_ahead() -> None:
    shares = FairShares()
    come(shares, "light")
    come(shares, "greedy")
    shares.leave("greedy")
    shares.charge("greedy", 500.0)
    shares.finish("greedy")
    come(shares, "greedy")
    assert debts(shares, "greedy", "light") == [500.0, 0.0]


def test_while_nobody_waits_the_last_one_served_sets_the_level() -> None:
    """Else whoever was served in a quiet hour would be behind everybody who comes after it."""
    shares = FairShares()
    come(shares, "early")
    shares.leave("early")
    shares.charge("early", 700.0)
    come(shares, "late")
    assert debts(shares, "early", "late") == [0.0, 0.0]
    assert shares.level() == 700.0


def test_users_who_are_not_ahead_are_forgotten() -> None:
    shares = FairShares()
    come(shares, "stays")
    shares.leave("stays")
    for index in range(10 * NUM_KEPT):
        come(shares, f"u{index}")
        shares.leave(f"u{index}")
        shares.charge(f"u{index}", 3.0)
        shares.finish(f"u{index}")
    assert len(shares._counters) <= NUM_KEPT + 3


def test_users_who_wait_and_have_nothing_running_are_known() -> None:
    shares = FairShares()
    for user in ("a", "a", "b"):
        come(shares, user)
    assert shares.without_running() == {"a", "b"}
    shares.leave("a")
    assert (shares.num_running("a"), shares.num_running("b")) == (1, 0)
    assert shares.without_running() == {"b"}
    shares.finish("a")
    assert shares.without_running() == {"a", "b"}


def test_an_idle_engine_forgets_everybody() -> None:
    shares = FairShares()
    for index in range(100):
        come(shares, f"u{index}")
        shares.charge(f"u{index}", 10.0 * index)
    for index in range(100):
        shares.leave(f"u{index}")
        shares.finish(f"u{index}")
    assert shares.level() == 0.0
    assert debts(shares, "u99") == [0.0]
    assert (len(shares._counters), len(shares._num_waiting), len(shares._num_unfinished)) == (
        0,
        0,
        0,
    )
