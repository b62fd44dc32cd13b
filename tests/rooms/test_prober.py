"""Probes go by every proxy and every broker, in good time, and find out what fails."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from chappe.rooms.linkstats import End, Link
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.rooms.prober import Prober
from chappe.rooms.role import Source
from chappe.rooms.roll import Place, Roll, Seat
from chappe.rooms.stamp import stamp
from chappe.wire.rooms import (
    Card,
    Noted,
    Probe,
    RoleKind,
    State,
    decode_room_ops,
    encode_room_op,
    join_room_ops,
)
from tests.rooms.test_alarm import Telling

CARD = Card("gw", 0, "gw", 1)
USER = End(RoleKind.PUBLISHER, "gw")
GATEWAY = End(RoleKind.GATEWAY, "gw")
STEP_S = 0.005


def make_seat(id_, name, state=State.RUNNING):
    return Seat(id_, Place(name=name, host=name, port=1, state=state))


def make_roll(proxies=2, brokers=(2,), **more):
    """So many proxies, and so many replicas of each partition."""
    return Roll(
        proxies=tuple(make_seat(n, f"p{n}") for n in range(proxies)),
        brokers={
            partition: tuple(make_seat(n, f"b{partition}.{n}") for n in range(count))
            for partition, count in enumerate(brokers)
        },
        partitions=more.pop("partitions", len(brokers)),
        wanted=more.pop("wanted", len(brokers)),
        **more,
    )


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def wall_us(self):
        return int(self.now * 1_000_000)

    def wall_ms(self):
        return self.wall_us() // 1000


class Rooms:
    """A gateway, as far as pseudo rooms go."""

    def __init__(self):
        self.asked = []
        self.known = True

    def pseudo(self, rooms):
        self.asked.append(list(rooms))

    def confirmed(self, app, room):
        assert app == "~"
        return self.known


class World:
    """Proxies and brokers between a prober and itself: each link takes a millisecond, each role
    half of one, and whoever is in `dead` loses what it gets."""

    def __init__(self, roll, **probe):
        self.clock = Clock()
        self.sent = []
        self.flying = []
        self.dead = set()
        self.gateway = Rooms()
        self.recorder = Telling()
        self.prober = Prober(
            options=RoomsOptions(beat_s=0.05, probe=ProbeOptions(**probe)),
            post=self,
            clock=self.clock,
            name="gw",
            card=CARD,
            recorder=self.recorder,
            gateway=self.gateway,
        )
        self.see(roll)

    def see(self, roll):
        self.roll = roll
        self.prober.see(roll, self.clock.now)

    def send(self, to, op):
        now = self.clock.now
        (proxy,) = (seat.name for seat in self.roll.proxies if seat.endpoint == to)
        (broker,) = (s.name for s in self.roll.brokers[op.partition] if s.id == op.broker)
        self.sent.append((now, proxy, broker))
        if self.dead.isdisjoint({proxy, broker, (proxy, broker)}):
            (op,) = decode_room_ops(join_room_ops([encode_room_op(op)]))
            us = int(now * 1_000_000)
            stamp(op, proxy, RoleKind.PROXY, us + 1_000, us + 1_500)
            stamp(op, broker, RoleKind.BROKER, us + 2_500, us + 3_000)
            self.flying.append((now + 0.004, op))

    def run(self, seconds):
        """Let time pass; the process ticks when it is due, and no more often."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += STEP_S
            landed = [op for at, op in self.flying if at <= self.clock.now]
            self.flying = [each for each in self.flying if each[0] > self.clock.now]
            for op in landed:
                self.prober.receive(op, Source(("b", 1), "b"), self.clock.now)
            if self.prober.due <= self.clock.now:
                self.prober.tick(self.clock.now)
                assert self.prober.due > self.clock.now, "a tick does all that is due"

    def rows(self):
        return {row.link: row for row in self.prober.links()}

    def alarms(self):
        return {row.link for row in self.prober.links() if row.alarms}


def proxy(n):
    return End(RoleKind.PROXY, f"p{n}", n)


def broker(partition, n):
    return End(RoleKind.BROKER, f"b{partition}.{n}", n, partition)


def test_each_round_goes_by_every_proxy_and_every_broker_of_every_partition():  # R15
    world = World(make_roll(3, (2, 1)))
    world.run(5)
    ways = Counter((p, b) for _, p, b in world.sent)
    assert ways.keys() == {(f"p{p}", b) for p in range(3) for b in ("b0.0", "b0.1", "b1.0")}
    assert set(ways.values()) <= {4, 5}


def test_a_round_is_spread_over_its_time():
    world = World(make_roll(4, (5,)), every_s=1.0)
    world.run(3)
    times = [at for at, _, _ in world.sent]
    start = times[0]
    per_tenth = Counter(int((at - start) * 10) for at in times if at - start < 1)
    assert max(per_tenth.values()) <= 3  # 20 ways in ten tenths


def test_a_large_layout_is_taken_in_turns_and_left_out_is_nobody():
    world = World(make_roll(10, (30,)), round_max=40)
    world.run(1.5)
    assert len(world.sent) <= 60
    world.run(8.5)
    assert len({(p, b) for _, p, b in world.sent}) == 300
    assert max(Counter(int(at) for at, _, _ in world.sent).values()) <= 44


def test_each_link_has_its_mean_and_percentiles():  # R15
    world = World(make_roll(2, (2,)))
    world.run(10)
    rows = world.rows()
    assert rows.keys() == {
        *(Link(USER, proxy(p)) for p in range(2)),
        *(Link(proxy(p), broker(0, b)) for p in range(2) for b in range(2)),
        *(Link(broker(0, b), GATEWAY) for b in range(2)),
    }
    for link, row in rows.items():
        assert (row.failed, row.share, row.alarms) == (0, 1.0, ())
        assert row.arrived == (9 if link.tail.role is RoleKind.PROXY else 18)
        if link.head != GATEWAY:  # that one waits for the next step of this world
            assert row.mean_us == row.p50_us == row.p99_us == 1_000


def test_what_does_not_come_in_time_has_failed_and_too_late_does_not_help():  # R15
    world = World(make_roll(1, (1,)), timeout_s=0.5)
    world.run(0.5)
    late = world.flying or [(0, None)]
    world.dead.add("p0")
    world.run(3)
    assert world.prober.counts["lost"] in (2, 3)
    assert late
    op = Probe(world.prober.counts["sent"], 0, 0, 0, CARD, [])
    before = world.rows()[Link(USER, proxy(0))]
    world.run(1)
    world.prober.receive(op, Source(("b", 1), "b"), world.clock.now)
    assert world.prober.counts["late"] == 1
    assert world.rows()[Link(USER, proxy(0))].arrived == before.arrived


def test_a_dead_proxy_raises_an_alarm_of_its_link_and_of_no_other():  # R15
    world = World(make_roll(3, (3,)), alarm_failures=5)
    world.run(3)
    world.dead.add("p1")
    world.run(5)
    assert world.alarms() == set()
    world.run(3)
    assert world.alarms() == {Link(USER, proxy(1))}
    world.dead.clear()
    world.run(8)
    assert world.alarms() == set()
    told = [columns for kind, columns in world.recorder.told if kind == "room_alarm"]
    assert [(each["peer"], each["reason"]) for each in told] == [
        ("p1", "failed"),
        ("p1", "failed_over"),
    ]


def test_a_broken_way_between_a_proxy_and_a_broker_is_found():  # R15
    world = World(make_roll(2, (2,)), alarm_failures=3)
    world.dead.add(("p0", "b0.1"))
    world.run(7)
    assert world.alarms() == {Link(proxy(0), broker(0, 1))}


def test_a_dead_broker_is_found_though_its_replicas_live():  # R15
    world = World(make_roll(2, (2, 2)), alarm_failures=3)
    world.dead.add("b1.0")
    world.run(7)
    assert world.alarms() == {Link(broker(1, 0), GATEWAY)}


def test_one_lost_probe_is_counted_and_is_no_alarm():
    world = World(make_roll(2, (2,)))
    world.run(3)
    world.dead.add(("p0", "b0.0"))
    world.run(1)
    world.dead.clear()
    world.run(8)
    row = world.rows()[Link(proxy(0), broker(0, 0))]
    assert (row.failed, row.in_a_row, row.alarms) == (1, 0, ())
    assert row.share < 1


def test_who_leaves_is_forgotten_and_what_was_on_its_way_is_not_lost():
    world = World(make_roll(2, (2,)), alarm_failures=2)
    world.dead.add("p1")
    world.run(5)
    assert world.alarms() == {Link(USER, proxy(1))}
    lost = world.prober.counts["lost"]
    world.see(make_roll(1, (2,)))
    world.run(3)
    assert not any(proxy(1) in link for link in world.rows())
    assert world.alarms() == set()
    assert world.prober.counts["lost"] == lost
    assert world.prober.counts["void"] > 0
    told = [columns["reason"] for kind, columns in world.recorder.told if kind == "room_alarm"]
    assert told == ["failed", "failed_over"]


def test_links_of_who_leaves_within_a_round_do_not_come_back_when_it_is_over():
    # Some came by it before, some were lost by it before, and some are on their way.
    for dead in (set(), {"p1"}):
        for after_s in (0.3, 0.5, 0.7, 0.9):
            world = World(make_roll(2, (2,)), timeout_s=0.2)
            world.run(3)
            world.dead |= dead
            world.run(after_s)
            world.see(make_roll(1, (2,)))
            world.run(3)
            assert not any(proxy(1) in link for link in world.rows())
            assert world.alarms() == set()
            assert proxy(1).id not in world.prober.quality()


def test_an_earlier_life_that_is_registered_still_is_not_tried_nor_told_of():
    world = World(make_roll(2, (1,)), alarm_failures=2)
    world.run(3)
    again = Seat(9, Place(name="p1", host="again", port=1))
    roll = make_roll(2, (1,))
    world.see(replace(roll, proxies=(*roll.proxies, again)))
    world.sent.clear()
    world.run(5)
    tails = {link.head.id for link in world.rows() if link.tail == USER}
    assert tails == {0, 9}
    assert not any(proxy(1) in link for link in world.rows())
    assert world.alarms() == set()
    assert world.prober.counts["lost"] == 0
    assert {name for _, name, _ in world.sent} == {"p0", "p1"}


def test_who_is_new_is_tried_only_when_others_have_seen_it():
    world = World(make_roll(1, (1,)))
    world.run(0.095)
    assert world.sent == []
    world.run(2)
    assert world.sent


def test_who_makes_ready_is_not_tried():
    world = World(
        Roll(
            proxies=(make_seat(0, "p0"), make_seat(1, "p1", State.INIT)),
            brokers={0: (make_seat(0, "b0.0"), make_seat(1, "b0.1", State.INIT))},
            partitions=1,
            wanted=1,
        )
    )
    world.run(5)
    assert {(p, b) for _, p, b in world.sent} == {("p0", "b0.0")}


def test_pseudo_rooms_are_asked_for_each_partition_that_is_or_is_to_be():
    world = World(make_roll(1, (1,)))
    world.see(make_roll(1, (1, 1), partitions=1, wanted=2))
    world.see(make_roll(1, (1, 1), partitions=2, wanted=2))
    assert world.gateway.asked == [[0], [0, 1]]


def test_nothing_is_sent_before_the_rooms_are_known_but_not_for_ever():
    world = World(make_roll(1, (1,)))
    world.gateway.known = False
    world.run(4.5)
    assert world.sent == []
    world.run(2)  # beyond rooms.join_timeout_s
    assert world.sent


def test_a_process_that_slept_blames_nobody():
    world = World(make_roll(2, (2,)), alarm_failures=1)
    world.run(3)
    world.dead.update({"p0", "p1"})
    world.run(0.3)
    world.clock.now += 30  # and no tick meanwhile
    world.dead.clear()
    world.run(3)
    assert world.prober.counts["lost"] == 0
    assert world.prober.counts["void"] > 0
    assert world.alarms() == set()


def test_after_a_sleep_no_probes_are_made_up_for():
    world = World(make_roll(2, (2,)))
    world.run(3)
    sent = len(world.sent)
    world.clock.now += 60
    world.run(1)
    assert len(world.sent) - sent <= 5


def test_probes_of_others_and_of_an_earlier_life_are_not_taken():
    world = World(make_roll(1, (1,)))
    world.run(2)
    counts = world.prober.counts.copy()
    other = Probe(1, 0, 0, 0, Card("gw", 9, "gw", 1), [])
    world.prober.receive(other, Source(("b", 1), "b"), world.clock.now)
    world.prober.receive(Noted(1, 0, "gw", 0, []), Source(("b", 1), "b"), world.clock.now)
    assert world.prober.counts == counts


def test_a_probe_that_was_not_where_it_should_be_is_no_arrival():
    world = World(make_roll(1, (1,)))
    world.dead.add("p0")
    world.run(1.2)
    op = Probe(world.prober.counts["sent"], 0, 0, 0, CARD, [])
    world.prober.receive(op, Source(("b", 1), "b"), world.clock.now)
    assert (world.prober.counts["odd"], world.prober.counts["arrived"]) == (1, 0)


def test_how_good_each_proxy_is_is_told_by_its_whole_ways():  # R6
    world = World(make_roll(2, (2,)))
    world.dead.add(("p1", "b0.0"))
    world.run(12)
    quality = world.prober.quality()
    assert quality[0].success == 1.0
    assert 0.4 < quality[1].success < 0.6
    assert 0.003 < quality[0].delay_s < 0.012
    world.see(make_roll(1, (2,)))
    assert world.prober.quality().keys() == {0}


def test_each_link_is_told_as_an_event_every_ten_seconds():
    world = World(make_roll(1, (1,)))
    world.run(25)
    told = [columns for kind, columns in world.recorder.told if kind == "room_link"]
    assert len(told) == 9
    last = [each for each in told if each["peer"] == "p0"][-1]
    assert (last["came_from"], last["role"], last["peer_role"]) == ("gw", "publisher", "proxy")
    assert (last["n"], last["failed"], last["delay_p50"], last["delay_p99"]) == (10, 0, 1000, 1000)


def test_probes_can_be_turned_off():
    world = World(make_roll(2, (2,)), every_s=0.0)
    world.run(5)
    assert world.sent == []
    assert world.gateway.asked == []


def test_links_that_are_too_many_are_shared_among_processes():
    world = World(make_roll(10, (10,)), links_max=60, round_max=1000)
    world.run(5)
    assert len(world.rows()) <= 60
    assert len({(p, b) for _, p, b in world.sent}) == 40


def test_a_process_that_is_always_late_still_tries_every_way():
    world = World(make_roll(4, (10,)))
    for _ in range(100):
        world.clock.now += 0.2  # it is told the time five times a second, and sends at most half
        world.prober.tick(world.clock.now)
    assert len({(p, b) for _, p, b in world.sent}) == 40
