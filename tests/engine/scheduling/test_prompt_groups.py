from __future__ import annotations

from engine.scheduling.prompt_groups import PromptGroups
from engine.scheduling.sequence import Sequence
from tests.support.engines import make_request

PROMPT = tuple(range(10))


def make(
    name: str, leader: str | None = None, *, prompt: tuple[int, ...] = PROMPT, salt: str = ""
) -> Sequence:
    request = make_request(name, prompt, same_prompt_as=leader, salt=salt)
    return Sequence(request, arrival_s=0.0)


def test_followers_wait_for_the_prompt_and_then_share_it() -> None:
    groups, leader, follower = PromptGroups(), make("a"), make("b", "a")
    assert groups.computing(follower) is None
    groups.enter(leader)
    leader.num_computed_tokens = 9
    assert groups.computing(follower) is leader
    assert groups.source(follower) is None, "one token of the prompt is missing"
    leader.num_computed_tokens = 10
    assert groups.source(follower) is leader


def test_any_of_the_group_can_lead() -> None:
    groups, leader, first, second = PromptGroups(), make("a"), make("b", "a"), make("c", "a")
    groups.enter(leader)
    groups.leave(leader)
    assert groups.computing(first) is None
    groups.enter(first)
    first.num_computed_tokens = 10
    assert groups.source(second) is first
    assert groups.source(leader) is first, "one that was preempted, too"


def test_a_wrong_word_shares_nothing() -> None:
    groups, leader = PromptGroups(), make("a")
    leader.num_computed_tokens = 10
    groups.enter(leader)
    for other in (
        make("b", "a", prompt=(*PROMPT[:-1], 99)),
        make("c", "a", prompt=(*PROMPT, 10)),
        make("d", "a", salt="s"),
        make("e", "nobody"),
        make("f"),
    ):
        assert groups.source(other) is None
        assert groups.computing(other) is None


def test_nothing_is_kept_of_those_who_left() -> None:
    groups, leader = PromptGroups(), make("a")
    groups.enter(leader)
    groups.leave(leader)
    assert groups._running == {}
