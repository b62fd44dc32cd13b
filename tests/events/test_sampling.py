"""Which messages are recorded: decided by the id, the same whatever they come with."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.events.sampling import Sampling
from chappe.ids import EPOCH_MS, Snowflake

SHARES = (0.0, 0.001, 0.01, 0.1, 0.5, 0.999, 1.0)
SAMPLINGS = {share: Sampling(share) for share in SHARES}


class Numbered(NamedTuple):
    id: int


def ids_of(per_ms: int, count: int, node: int = 3) -> list[int]:
    """Ids as a node gives them that sends so many messages each millisecond."""
    now = EPOCH_MS + 50_000_000_000
    clock = [now]
    ids = Snowflake(node, lambda: clock[0])
    found = []
    while len(found) < count:
        clock[0] += 1
        ids.tick()
        found += [ids.next() for _ in range(per_ms)]
    return found


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("per_ms", [1, 3, 40, 400])
def test_the_share_is_what_was_asked_for_however_busy_a_node_is(share: float, per_ms: int) -> None:
    ids = ids_of(per_ms, 200_000)
    taken = sum(SAMPLINGS[share].takes(one) for one in ids)
    assert taken / len(ids) == pytest.approx(share, rel=0.05)
    assert SAMPLINGS[share].share == pytest.approx(share, rel=0.01)


def test_what_is_chosen_is_spread_over_time_and_not_in_lumps() -> None:
    taken = [SAMPLINGS[0.01].takes(one) for one in ids_of(100, 200_000)]
    for at in range(0, len(taken), 20_000):
        assert 150 <= sum(taken[at : at + 20_000]) <= 250
    assert not any(all(taken[at : at + 3]) for at in range(len(taken)))


@given(st.integers(0, 2**63 - 1))
def test_all_of_a_smaller_share_is_in_every_larger_one(one: int) -> None:
    taken = [sampling.takes(one) for sampling in SAMPLINGS.values()]
    assert taken == sorted(taken)
    assert (taken[0], taken[-1]) == (False, True)


def following(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


FOLLOWING = st.builds(following, st.integers(0, 2**62), st.integers(1, 600))
RUNS = st.one_of(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=50), FOLLOWING)


@given(st.sampled_from(SHARES), RUNS)
def test_a_run_that_grows_is_sampled_as_its_messages_are(share: float, ids: list[int]) -> None:
    messages = [Numbered(one) for one in sorted(set(ids))]
    sampling = SAMPLINGS[share]
    expected = [message for message in messages if sampling.takes(message.id)]
    assert list(sampling.of(messages, growing=True)) == expected
    assert list(sampling.of(messages)) == expected


@given(st.sampled_from(SHARES), FOLLOWING, st.randoms(use_true_random=False), st.booleans())
def test_a_run_in_any_order_is_sampled_as_its_messages_are(
    share: float, ids: list[int], random: Random, ends_stay: bool
) -> None:
    middle = ids[1:-1]
    random.shuffle(middle)
    mixed = [*ids[:1], *middle, *ids[1:][-1:]]
    if not ends_stay:  # else it looks as if it grew
        random.shuffle(mixed)
    sampling, messages = SAMPLINGS[share], [Numbered(one) for one in mixed]
    expected = [message for message in messages if sampling.takes(message.id)]
    assert list(sampling.of(messages)) == expected


def test_a_run_over_the_end_of_the_residues_is_sampled_whole() -> None:
    sampling = SAMPLINGS[0.5]
    messages = [Numbered(99_991 * 1_000 - 40 + n) for n in range(80)]
    assert list(sampling.of(messages)) == [one for one in messages if sampling.takes(one.id)]
