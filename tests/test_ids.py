"""Ids: never twice, never smaller, whatever the clock does and however often a node restarts."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import Overload
from chappe.ids import (
    EPOCH_MS,
    NODE_MAX,
    RESERVE_MS,
    PrefixedIds,
    Snowflake,
    VolatileFloor,
    prefixed_ms,
    snowflake_ms,
)

NOW_MS = EPOCH_MS + 50_000_000_000
HOUR_MS = 3_600_000


class SteppingClock:
    """A wall clock that the test sets."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Memory:
    """A floor that outlives its generator."""

    def __init__(self) -> None:
        self.value = 0
        self.stores = 0

    def load(self) -> int:
        return self.value

    def store(self, reserved_until: int) -> None:
        self.value = reserved_until
        self.stores += 1


class FullDisk(Memory):
    """A floor that cannot be written for a while."""

    full = False

    def store(self, reserved_until: int) -> None:
        if self.full:
            raise OSError("no space left")
        super().store(reserved_until)


def strictly_increasing(values) -> bool:
    return all(a < b for a, b in pairwise(values))


# What happens to a generator: ids are asked for, the clock moves or jumps, the process restarts.
steps = st.lists(
    st.one_of(
        st.integers(1, 3000),
        st.sampled_from(["tick", "restart", "hour back", "hour ahead", "year back"]),
        st.integers(-5000, 5000).map(lambda ms: ("clock", ms)),
    ),
    max_size=25,
)
JUMPS = {"hour back": -HOUR_MS, "hour ahead": HOUR_MS, "year back": -365 * 24 * HOUR_MS}


@given(steps)
def test_snowflakes_only_grow_across_restarts_and_clock_steps(script):
    clock, floor = SteppingClock(), Memory()
    ids = Snowflake(3, clock.wall_ms, floor)
    given_ids = []
    for step in script:
        if isinstance(step, int):
            given_ids += [ids.next() for _ in range(step)]
        elif step == "tick":
            assert ids.tick() == clock.now_ms
        elif step == "restart":
            ids = Snowflake(3, clock.wall_ms, floor)
        else:
            clock.now_ms += JUMPS[step] if isinstance(step, str) else step[1]
    assert strictly_increasing(given_ids)
    assert all(0 < value < 2**63 for value in given_ids)
    assert all(value >> 12 & NODE_MAX == 3 for value in given_ids)


@pytest.mark.parametrize("crash_after", [0, 1, 5000])
def test_a_restart_after_the_clock_stepped_back_an_hour_gives_no_id_again(crash_after):
    clock, floor = SteppingClock(), Memory()
    before = Snowflake(0, clock.wall_ms, floor)
    old = [before.next() for _ in range(crash_after)]
    clock.now_ms -= HOUR_MS
    after = Snowflake(0, clock.wall_ms, floor)
    new = [after.next() for _ in range(5000)]
    assert strictly_increasing(old + new)


def test_ids_of_different_nodes_never_meet():
    clock = SteppingClock()
    nodes = [Snowflake(node, clock.wall_ms) for node in (0, 1, 2, NODE_MAX)]
    given_ids = [node.next() for node in nodes for _ in range(10_000)]
    assert len(set(given_ids)) == len(given_ids)


def test_a_generator_follows_the_clock_only_at_a_tick():
    clock = SteppingClock()
    ids = Snowflake(1, clock.wall_ms)
    clock.now_ms += 70
    assert snowflake_ms(ids.next()) == NOW_MS
    assert ids.tick() == NOW_MS + 70
    assert snowflake_ms(ids.next()) == NOW_MS + 70


def test_the_time_of_an_id_can_be_read_back():
    for now_ms in (EPOCH_MS + 5, NOW_MS, EPOCH_MS + 2**41 - RESERVE_MS):
        assert snowflake_ms(Snowflake(7, lambda now_ms=now_ms: now_ms).next()) == now_ms


def test_a_used_up_millisecond_borrows_from_the_next():
    clock = SteppingClock()
    ids = Snowflake(1, clock.wall_ms)
    given_ids = [ids.next() for _ in range(3 * 4096)]
    assert strictly_increasing(given_ids)
    assert snowflake_ms(given_ids[0]) == NOW_MS
    assert snowflake_ms(given_ids[-1]) in (NOW_MS + 2, NOW_MS + 3)
    # The clock is still behind what was borrowed: a tick must not go back to it.
    ids.tick()
    assert ids.next() > given_ids[-1]


def test_a_clock_before_the_epoch_still_gives_growing_ids():
    ids = Snowflake(1, lambda: 0)
    given_ids = [ids.next() for _ in range(5000)]
    assert given_ids[0] > 0
    assert strictly_increasing(given_ids)


@pytest.mark.parametrize("node", [-1, NODE_MAX + 1])
def test_a_node_number_that_does_not_fit_is_refused(node):
    with pytest.raises(ValueError, match="node"):
        Snowflake(node, lambda: NOW_MS)


def test_a_reservation_is_written_before_the_first_id_and_twice_a_minute():
    clock, floor = SteppingClock(), Memory()
    ids = Snowflake(1, clock.wall_ms, floor)
    assert floor.value == NOW_MS - EPOCH_MS + RESERVE_MS
    for _ in range(600):
        clock.now_ms += 1000
        ids.tick()
        assert snowflake_ms(ids.next()) - EPOCH_MS < floor.value
    assert floor.stores <= 21


def test_no_id_is_given_of_a_time_that_could_not_be_reserved():
    clock, floor = SteppingClock(), FullDisk()
    ids = Snowflake(1, clock.wall_ms, floor)
    last = ids.next()
    floor.full = True
    clock.now_ms += RESERVE_MS + 1
    for _ in range(2):  # the second try fails like the first
        assert ids.tick() == clock.now_ms
        value = ids.next()
        assert value > last
        assert snowflake_ms(value) - EPOCH_MS < floor.value
        last = value
    floor.full = False
    clock.now_ms += RESERVE_MS // 60  # when it is tried again
    ids.tick()
    assert snowflake_ms(ids.next()) == clock.now_ms
    assert clock.now_ms - EPOCH_MS < floor.value


def test_ids_are_borrowed_from_what_was_reserved_and_end_there(monkeypatch):
    monkeypatch.setattr("chappe.ids.RESERVE_MS", 4)
    floor = FullDisk()
    ids = Snowflake(1, SteppingClock().wall_ms, floor)
    floor.full = True
    given_ids = []
    with pytest.raises(Overload, match="ids"):
        given_ids.extend(iter(ids.next, None))
    assert strictly_increasing(given_ids)
    assert {snowflake_ms(value) - NOW_MS for value in given_ids} == {0, 1, 2, 3}


def test_a_volatile_floor_remembers_nothing():
    floor = VolatileFloor()
    floor.store(99)
    assert floor.load() == 0


def test_a_prefixed_id_has_the_format_of_push():  # P5
    ids = PrefixedIds(46, lambda: NOW_MS)
    second = NOW_MS // 1000
    assert ids.next("m") == f"m1a00000{second:08x}"
    assert ids.next("c") == f"c1a00001{second:08x}"
    for prefix in "cpmj":
        value = ids.next(prefix)
        assert re.fullmatch(r"[cpmj][0-9a-z]{2}[0-9a-f]{5}[0-9a-f]{8}", value)
        assert len(value) == 16
        assert value[0] == prefix


@pytest.mark.parametrize(("server", "text"), [(0, "00"), (35, "0z"), (36, "10"), (1295, "zz")])
def test_a_server_is_two_digits_in_base_36(server, text):  # P5
    assert PrefixedIds(server, lambda: NOW_MS).next("j")[1:3] == text
    assert int(text, 36) == server


@pytest.mark.parametrize("server", [-1, 1296])
def test_a_server_number_that_does_not_fit_is_refused(server):
    with pytest.raises(ValueError, match="server"):
        PrefixedIds(server, lambda: NOW_MS)


@pytest.mark.parametrize("prefix", ["", "x", "cm", "C"])
def test_an_unknown_prefix_is_refused(prefix):
    with pytest.raises(ValueError, match="prefix"):
        PrefixedIds(0, lambda: NOW_MS).next(prefix)


@given(steps)
def test_prefixed_ids_are_unique_across_servers_restarts_and_clock_steps(script):  # P5
    clock = SteppingClock()
    floors = [Memory(), Memory()]
    servers = [PrefixedIds(n, clock.wall_ms, floor) for n, floor in enumerate(floors)]
    given_ids = []
    for step in script:
        if isinstance(step, int):
            given_ids += [ids.next("m") for ids in servers for _ in range(step)]
        elif step == "restart":
            servers = [PrefixedIds(n, clock.wall_ms, floor) for n, floor in enumerate(floors)]
        elif step != "tick":
            clock.now_ms += JUMPS[step] if isinstance(step, str) else step[1]
    assert len(set(given_ids)) == len(given_ids)
    assert all(len(value) == 16 for value in given_ids)


def test_more_ids_than_a_second_holds_go_on_in_the_next(monkeypatch):  # P5
    monkeypatch.setattr(PrefixedIds, "SEQUENCE_MAX", 0xF)
    ids = PrefixedIds(0, lambda: NOW_MS)
    given_ids = [ids.next("m") for _ in range(40)]
    assert len(set(given_ids)) == 40
    second = NOW_MS // 1000
    assert given_ids[15] == f"m000000f{second:08x}"
    assert given_ids[16] == f"m0000000{second + 1:08x}"
    assert given_ids[39] == f"m0000007{second + 2:08x}"


def test_the_sequence_of_a_second_is_five_hex_digits():  # P5
    assert PrefixedIds.SEQUENCE_MAX == 0xFFFFF


def test_a_prefixed_id_tells_its_second_and_nothing_else_does():
    for prefix in "cpmj":
        assert prefixed_ms(PrefixedIds(46, lambda: NOW_MS).next(prefix)) == NOW_MS // 1000 * 1000
    for other in (
        "",
        "p0a0000165f2c3d",
        "p0a0000165f2c3d45",
        "x0a0000165f2c3d4",
        "p0A0000165f2c3d4",
    ):
        assert prefixed_ms(other) is None
