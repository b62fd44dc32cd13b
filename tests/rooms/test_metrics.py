"""What a process that takes part in rooms says of itself: metrics, and its status."""

from __future__ import annotations

from typing import ClassVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from chappe.rooms.dispatch import Dispatch
from chappe.rooms.metrics import LINKS_MAX, metrics_of
from chappe.rooms.options import RoomsOptions
from chappe.rooms.post import LocalPost, Post
from chappe.rooms.publisher import Publisher
from chappe.rooms.role import Source
from chappe.rooms.roll import Roll, Weights
from chappe.rooms.status import status_of
from chappe.wire.rooms import Pulse, Pulsed, RoleKind, State
from tests.rooms.test_prober import STEP_S, World, make_roll, make_seat


class Broker:
    """A role that counts, as brokers do."""

    kind = RoleKind.BROKER
    id = 4
    due = float("inf")
    partition = 1
    state = State.INIT
    counts: ClassVar = {
        "messages": 7,
        "rooms": 3,
        "members": 9,
        "dropped_misrouted": 2,
        "dropped_unknown": 1,
    }


class Process:
    """A process with a publisher, a broker and a prober."""

    def __init__(self, roll, post=None, **probe):
        self.name = "gw"
        self.options = RoomsOptions()
        self.world = World(roll, **probe)
        self.post = post or LocalPost(me=("gw", 1), name="gw", on_waiting=lambda: None)
        self.dispatch = Dispatch()
        self.publisher = Publisher(
            options=self.options,
            post=self,
            clock=self.world.clock,
            name="gw",
            recorder=self.world.recorder,
            rng=None,
        )
        self.said = []
        self.dispatch.publisher = self.publisher
        self.dispatch.brokers[1] = Broker()
        self.dispatch.prober = self.world.prober
        self.roll = roll

    def send(self, to, op):
        self.said.append((to, op))

    @property
    def prober(self):
        return self.dispatch.prober


class Collected(Collector):
    def __init__(self, families):
        self._families = list(families)

    def collect(self):
        yield from self._families


def scrape(process, **more):
    """What a scraper gets."""
    registry = CollectorRegistry()
    registry.register(Collected(metrics_of(process, **more)))
    return generate_latest(registry).decode()


def read(process, **more):
    """Each sample by its name and the values of its labels, in the order of their names."""
    return {
        (
            sample.name.removeprefix("chappe_rooms_"),
            *(v for _, v in sorted(sample.labels.items())),
        ): (sample.value)
        for family in text_string_to_metric_families(scrape(process, **more))
        for sample in family.samples
    }


HOP = ("proxy", "publisher")  # its head, its tail
LINK = ("b0.1", "broker", "0")  # its head, the role of that, its partition


def test_probes_are_a_histogram_by_hop_and_quantiles_by_link():  # R15
    process = Process(make_roll(2, (2,)))
    process.world.run(5)
    seen = read(process)
    arrived = seen["probes_total", "arrived"]
    assert arrived > 10
    assert seen[("probe_seconds_count", *HOP)] == arrived
    assert seen["probe_seconds_bucket", "proxy", "0.0005", "publisher"] == 0
    assert seen["probe_seconds_bucket", "proxy", "0.001", "publisher"] == arrived
    assert seen["probe_seconds_bucket", "proxy", "+Inf", "publisher"] == arrived
    assert seen[("probe_seconds_sum", *HOP)] == pytest.approx(arrived / 1_000)
    for quantile in ("0.5", "0.9", "0.99"):
        assert seen[("link_delay_seconds", *LINK, quantile, "p0", "proxy")] == 0.001
    assert seen[("link_share", *LINK, "p0", "proxy")] == 1
    assert seen[("link_probes_total", *LINK, "p0", "proxy")] == arrived / 4


def test_failures_and_alarms_are_counted():  # R15
    process = Process(make_roll(2, (2,)), alarm_failures=2)
    process.world.dead.add("p1")
    process.world.run(6)
    seen = read(process)
    assert seen[("probe_failures_total", *HOP)] >= seen["probes_total", "lost"] - 2 > 0
    assert seen[("alarms",)] == 1
    assert seen[("alarms_raised_total", "failed", *HOP)] == 1
    assert seen["link_share", "p1", "proxy", "", "gw", "publisher"] == 0


def test_who_was_passed_over_although_it_answered_is_counted_by_who_did_it():  # R5
    process = Process(make_roll(1, (1,)))
    process.publisher.pulses.stalls = 4
    assert read(process)["stalls_total", "", "publisher"] == 4


def test_what_roles_count_has_their_kind_and_partition_and_drops_their_reason():
    seen = read(Process(make_roll(1, (1,))))
    assert seen["messages_total", "1", "broker"] == 7
    assert seen["messages_total", "", "publisher"] == 0
    assert seen["rooms", "1", "broker"] == 3
    assert seen["members", "1", "broker"] == 9
    assert seen["dropped_total", "1", "misrouted", "broker"] == 2
    assert seen["dropped_total", "1", "unknown", "broker"] == 1


def test_who_is_registered_is_counted_by_role_and_state():
    roll = Roll(
        proxies=(make_seat(1, "p"), make_seat(2, "q", State.INIT)),
        brokers={0: (make_seat(3, "b"),), 1: (make_seat(4, "c"),)},
        independent={0: (make_seat(5, "r"),)},
        partitions=2,
        wanted=4,
    )
    seen = read(Process(roll))
    assert seen["seats", "proxy", "running"] == 1
    assert seen["seats", "proxy", "init"] == 1
    assert seen["seats", "broker", "running"] == 2
    assert seen["seats", "router", "running"] == 1
    assert (seen[("partition_num",)], seen[("partition_wanted",)]) == (2, 4)


def test_datagrams_are_counted_and_refused_ones_by_cause():
    post = Post(
        options=RoomsOptions(),
        me=("gw", 1),
        name="gw",
        secret=b"s" * 32,
        cluster="c",
        entropy=bytes,
        on_waiting=lambda: None,
    )
    process = Process(make_roll(1, (1,)), post)
    post.take(b"nonsense", ("x", 1), 0.0)
    pulse = Pulse(RoleKind.PROXY, 1, RoleKind.ROUTER, 9, 1, 0.0)
    process.dispatch.hand(pulse, Source(("x", 1), "x"), 0.0)
    seen = read(process)
    assert seen[("datagrams_received_total",)] == 1
    assert seen[("received_bytes_total",)] == 8
    assert sum(n for key, n in seen.items() if key[0] == "datagrams_refused_total") == 1
    assert seen[("misdirected_total",)] == 1
    assert seen["peers", "out"] == 0


def test_links_name_nodes_only_where_that_is_wanted():
    process = Process(make_roll(2, (2,)))
    process.world.run(3)
    assert '"p0"' not in scrape(process, links=False)
    assert '"p0"' in scrape(process)


def test_a_scrape_stays_small_and_has_the_worst_links():
    process = Process(make_roll(40, (30,)), round_max=2000)
    process.world.dead.add("p7")
    process.world.run(4)
    shares = {key: share for key, share in read(process).items() if key[0] == "link_share"}
    assert len(process.prober.links()) > LINKS_MAX == len(shares)
    assert shares["link_share", "p7", "proxy", "", "gw", "publisher"] == 0


def test_status_has_seats_with_what_is_known_of_them():
    roll = make_roll(2, (1,), weights=Weights(proxies={0: 0.5}))
    process = Process(roll)
    clock = process.world.clock
    process.publisher.pulses.watch(roll.proxies, clock.now)
    (_, asked), _ = process.said
    clock.now += STEP_S
    at_us = clock.wall_us()
    pulsed = Pulsed(
        asked.sender, 0, RoleKind.PROXY, 0, asked.beat, asked.sent, at_us, State.RUNNING
    )
    process.publisher.pulses.hear(pulsed, clock.now)
    status = status_of(process)
    first, second = status.proxies
    assert (first.node, first.state, first.weight, first.alive) == ("p0", "running", 0.5, True)
    assert first.round_trip_ms == pytest.approx(5.0)
    assert (second.weight, second.alive) == (None, False)
    (broker,) = status.brokers
    assert (broker.partition, broker.alive) == (0, None)  # nobody here asks it
    assert [(role.role, role.partition, role.state) for role in status.roles] == [
        ("publisher", None, "running"),
        ("broker", 1, "init"),
    ]
    assert status.roles[1].load["rooms"] == 3
    # Who is not registered has no id there that anybody could use.
    assert status.roles[0].id is None
    assert status.roles[1].id is not None
