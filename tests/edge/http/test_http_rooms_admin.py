"""How rooms do, over HTTP, for those who administer."""

from __future__ import annotations

import msgspec
import pytest

from chappe.edge.http.relay import RelayedPart
from chappe.edge.http.rooms_admin import RoomLinksBody, RoomLinksView
from chappe.errors import Overload, Unreachable
from chappe.rooms.linkstats import End, Link, LinkStats
from chappe.rooms.roll import Roll
from chappe.rooms.status import OwnRole, Replica, RoomsStatus
from chappe.rooms.weighing import resolve
from chappe.wire.rooms import RoleKind
from tests.rooms.rig import seats

PATHS = ("/v1/rooms/links", "/v1/rooms/status")
PUBLISHER = End(RoleKind.PUBLISHER, "gw")
PROXY = End(RoleKind.PROXY, "px", 3)
BROKER = End(RoleKind.BROKER, "bk", 4, 1)


def make_row(link, delays, failed=0, alarms=()):
    stats = LinkStats(100)
    for delay in delays:
        stats.arrive(delay, 5_000_000)
    for _ in range(failed):
        stats.fail()
        stats.try_again(well=False)
    return stats.row(link, alarms)


class Report:
    """Rooms of two links, one of which fails."""

    sla = 0.99
    weighers = ("default",)

    def __init__(self):
        self.rows = [
            make_row(Link(PUBLISHER, PROXY), [1_000, 3_000]),
            make_row(Link(PROXY, BROKER), [2_000], failed=3, alarms=("failed",)),
        ]
        self.roll = Roll(proxies=seats(3), brokers={0: seats(4), 1: seats(12)}, partitions=2)
        self.weights = None
        self.away = False

    def status(self):
        return RoomsStatus(
            node="gw",
            system="pubsub",
            balance="turns",
            partitions=2,
            wanted=4,
            independent_routers=False,
            router_partitions=0,
            router_wanted=0,
            roles=[OwnRole(role="gateway", id=9, state="running", load={"rooms": 2})],
            proxies=[Replica(role="proxy", id=3, node="px", host="h", port=1, state="running")],
            brokers=[],
            routers=[],
        )

    def links(self):
        return self.rows

    async def weigh(self, named, *, ignore=False):
        if self.away:
            raise Overload("rooms: the registry is away")
        self.weights, unknown = resolve(named, self.roll, ignore=ignore)
        return unknown


class Others:
    """Other nodes: one answers, one does not."""

    def __init__(self):
        self.asked = []

    def named(self, tag):
        return None

    async def relay(self, node, request):
        self.asked.append((node, request.path))
        if node == "gone":
            raise Unreachable("node: gone")
        body = RoomLinksBody(ok=True, sla=0.99, nodes=[RoomLinksView(node=node)])
        yield RelayedPart(200, {}, msgspec.json.encode(body))


def test_links_are_told_with_delays_and_shares_the_worst_first(serve, run):  # R15
    async def main():
        async with serve(rooms=Report(), node="gw") as service:
            answer = (await service.get("/v1/rooms/links")).json()
            assert (answer["ok"], answer["sla"]) == (True, 0.99)
            (own,) = answer["nodes"]
            assert (own["node"], own["ok"]) == ("gw", True)
            bad, good = own["links"]
            assert bad["tail"] == {"role": "proxy", "node": "px", "id": 3}
            assert bad["head"] == {"role": "broker", "node": "bk", "id": 4, "partition": 1}
            assert (bad["ok"], bad["alarms"], bad["share"]) == (False, ["failed"], 0.25)
            assert (bad["failed"], bad["failed_in_a_row"], bad["arrived"]) == (3, 3, 1)
            assert (good["ok"], good["mean_ms"], good["p99_ms"]) == (True, 2.0, 3.0)
            assert (good["last_ms"], good["last_at"]) == (3.0, 5_000)

    run(main)


def test_a_limit_keeps_the_worst_links(serve, run):
    async def main():
        async with serve(rooms=Report()) as service:
            answer = (await service.get("/v1/rooms/links?limit=1")).json()
            assert [link["alarms"] for link in answer["nodes"][0]["links"]] == [["failed"]]
            assert (await service.get("/v1/rooms/links?limit=0")).status_code == 400

    run(main)


def test_a_link_that_was_never_tried_comes_last(serve, run):
    async def main():
        report = Report()
        report.rows.insert(0, make_row(Link(BROKER, PUBLISHER), []))
        async with serve(rooms=report) as service:
            answer = (await service.get("/v1/rooms/links")).json()
            tried = [link["arrived"] + link["failed"] for link in answer["nodes"][0]["links"]]
            assert tried == [4, 2, 0]

    run(main)


def test_other_nodes_are_asked_and_one_that_hangs_hides_nobody(serve, run):
    async def main():
        others = Others()
        async with serve(
            rooms=Report(), node="gw", elsewhere=others, peers=("a", "gone")
        ) as service:
            nodes = (await service.get("/v1/rooms/links")).json()["nodes"]
            assert [(node["node"], node["ok"]) for node in nodes] == [
                ("a", True),
                ("gone", False),
                ("gw", True),
            ]
            assert others.asked == [("a", "/v1/rooms/links"), ("gone", "/v1/rooms/links")]

    run(main)


def test_status_tells_who_is_there_and_what_is_done_here(serve, run):
    async def main():
        async with serve(rooms=Report()) as service:
            status = (await service.get("/v1/rooms/status")).json()
            assert (status["ok"], status["partitions"], status["wanted"]) == (True, 2, 4)
            (proxy,) = status["proxies"]
            assert (proxy["id"], proxy["state"]) == (3, "running")
            assert status["roles"][0]["load"] == {"rooms": 2}

    run(main)


def test_weights_are_handed_on(serve, run):  # R6
    async def main():
        report = Report()
        async with serve(rooms=report) as service:
            body = {"proxies": {"3": 0.5}, "brokers": {"4": 0, "12": 2}}
            answer = await service.client.put("/v1/rooms/weights", json=body)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
            assert report.weights.proxies == {3: 0.5}
            assert report.weights.brokers == {4: 0.0, 12: 2.0}

    run(main)


def test_weights_of_ids_that_nobody_has_are_ignored_and_told_if_that_is_asked_for(serve, run):  # R6
    async def main():
        report = Report()
        async with serve(rooms=report) as service:
            body = {"proxies": {"3": 0.5, "9": 1}, "brokers": {"8": 1, "5": 1}, "unknown": "ignore"}
            answer = await service.client.put("/v1/rooms/weights", json=body)
            told = {"ok": True, "ignored": {"proxies": [9], "brokers": [5, 8]}}
            assert (answer.status_code, answer.json()) == (200, told)
            assert (report.weights.proxies, report.weights.brokers) == ({3: 0.5}, {})
            refused = await service.client.put("/v1/rooms/weights", json=body | {"unknown": "no"})
            assert refused.status_code == 400
            assert "unknown" in refused.json()["reason"]
            refused = await service.client.put(
                "/v1/rooms/weights", json=body | {"unknown": "refuse"}
            )
            assert refused.status_code == 400

    run(main)


def test_an_administrator_of_another_app_may_not_weigh_the_rooms_of_all(serve, run):
    async def main():
        report = Report()
        async with serve(rooms=report) as service:
            body = {"proxies": {"3": 0.5}, "app": "other"}
            refused = await service.client.put("/v1/rooms/weights", json=body)
            assert refused.status_code == 403
            assert refused.json()["reason"] == "app: rooms.weighers does not name other"
            assert report.weights is None

    run(main)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"proxies": {"3": -1}}, "proxies"),
        ({"brokers": {"x": 1}}, "brokers: there is no broker x (but 4, 12)"),
        ({"brokers": {"4": 1, "04": 2}}, "brokers: 04 has another weight there already"),
        ({"brokers": {"-4": 1}}, "brokers: there is no broker -4 (but 4, 12)"),
        ({"proxies": {"3": 1, "9": 1, "4": 0}}, "proxies: there is no proxy 4, 9 (but 3)"),
        ({"brokers": {"4": 1, "5": 1}}, "brokers: there is no broker 5 (but 4, 12)"),
        ({"proxy": {"3": 1}}, "proxy"),
        ({"proxies": {"3": 1e9}}, "proxies"),
    ],
)
def test_weights_that_make_no_sense_are_refused_by_name(serve, run, body, named):
    async def main():
        report = Report()
        async with serve(rooms=report) as service:
            refused = await service.client.put("/v1/rooms/weights", json=body)
            assert refused.status_code == 400
            assert named in refused.json()["reason"]
            assert report.weights is None

    run(main)


def test_weights_that_nobody_can_note_are_refused(serve, run):
    async def main():
        report = Report()
        report.away = True
        async with serve(rooms=report) as service:
            refused = await service.client.put("/v1/rooms/weights", json={})
            assert refused.status_code == 503
            assert "registry" in refused.json()["reason"]

    run(main)


def test_a_node_without_rooms_says_so(serve, run):
    async def main():
        async with serve() as service:
            for path in PATHS:
                refused = await service.get(path)
                assert refused.status_code == 404
                assert "rooms" in refused.json()["reason"]

    run(main)


def test_only_who_administers_everything_is_told(serve, run, bearer):
    async def main():
        report = Report()
        async with serve(dev=False, rooms=report) as service:
            for claims in ({}, {"admin": ["topic:*"]}):
                token = bearer("user:al", **claims)
                for path in PATHS:
                    assert (await service.get(path, headers=token)).status_code == 403
                refused = await service.client.put("/v1/rooms/weights", json={}, headers=token)
                assert refused.status_code == 403
            assert report.weights is None
            token = bearer("user:root", admin=["*"])
            for path in PATHS:
                assert (await service.get(path, headers=token)).status_code == 200
            set_ = await service.client.put("/v1/rooms/weights", json={}, headers=token)
            assert set_.status_code == 200

    run(main)
