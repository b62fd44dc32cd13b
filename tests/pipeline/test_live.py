"""Real nodes are killed under load: the audit says what became of what they had, no more, no less.

One of them comes back, and has its queues; the other never does. The clock of the first is wrong.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from statistics import median
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chappe.pipeline.job import run
from chappe.pipeline.options import Options
from tests.cli.process import run_here
from tests.faults.stories import queue_known
from tests.faults.trio import story, until
from tests.pipeline.live import AHEAD_MS, NAMES, Cluster, Load, address_on
from tests.pipeline.lived import SECOND, Lived, handed_then, hops_over_links
from tests.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
OPTIONS = Options(grace_ms=1_500, queue_sla_ms=1_000)
# Of the node that comes back, and of the one that does not: where work is done, and where nobody
# takes what is sent.
BACK, SHELF = address_on("n1", "queue:back"), address_on("n1", "queue:shelf")
GONE, LEFT = address_on("n2", "queue:gone"), address_on("n2", "queue:left")
SERVICES = {name: address_on(name, "service:s") for name in ("n1", "n2")}
TOPICS = {name: address_on(name, "topic:t") for name in ("n1", "n2")}
ROOM = "room:hall"
UNSENT = 10


async def live(cluster: Cluster, load: Load, killed: dict[str, int]) -> None:
    """Talk, kill a node, start it, kill another."""
    clients = [await load.connect(at, name) for at, name in enumerate(("a", "b", "c"))]
    takers = [await load.connect(0, f"taker{n}") for n in range(2)]
    for queue in (BACK, SHELF, GONE, LEFT):
        await clients[0].create(queue)
        await until(partial(queue_known, queue, *clients), f"all know {queue}")
    provider = Provider(load)
    for service in SERVICES.values():
        await takers[0].provide(service, provider.answer)
    for at in (0, 2):
        reader = await load.connect(at, f"reader{at}")
        for topic in TOPICS.values():
            await reader.subscribe(topic)
        load.keep_reading(reader)
    hearer = await load.connect(0, "hearer")
    await hearer.join(ROOM)
    load.keep_hearing(hearer)
    load.keep_taking(takers[0], BACK)
    load.keep_taking(takers[1], GONE)
    for _ in range(UNSENT):
        await load.send(0, clients[0], SHELF, load.queued)
        await load.send(0, clients[0], LEFT, load.queued)
    for at, client in enumerate(clients):
        load.keep_sending(at, client, ROOM, load.said)
        for queue in (BACK, GONE):
            load.keep_sending(at, client, queue, load.queued)
        for service in SERVICES.values():
            load.keep_sending(at, client, service, load.asked, tasks=4)
        for topic in TOPICS.values():
            load.keep_sending(at, client, topic, load.published)
    await under_way(load, "n1", BACK)
    await provider.hold(SERVICES["n1"])
    kill(cluster, 1, killed)
    provider.go_on()
    # The others find a new home for what lived there.
    await load.reaches(load.asked, SERVICES["n1"], 50)
    await asyncio.to_thread(cluster.nodes[1].start)
    await under_way(load, "n1", BACK)
    await under_way(load, "n2", GONE)
    await provider.hold(SERVICES["n2"])
    kill(cluster, 2, killed)
    provider.go_on()
    # It would wait for it, and has been told already what it may know.
    await clients[2].close()
    await load.reaches(load.asked, SERVICES["n2"], 50)
    await load.lasts(2 * OPTIONS.grace_ms / 1000)
    await load.stop()
    await load.drained(clients[0], BACK)


async def whole(cluster: Cluster, load: Load, killed: dict[str, int]) -> None:
    try:
        await live(cluster, load, killed)
    finally:
        await load.close()


class Provider:
    """Answers with what it is asked, and holds its answers back on demand: a node that is killed
    meanwhile takes some of them along."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._held: set[tuple[str, str]] = set()
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    async def answer(self, data: Any) -> Any:
        if not self._goes_on.is_set():
            self._held.add(self._load.asked.sent[len(data) + 2])
            await self._goes_on.wait()
        return data

    async def hold(self, service: str) -> None:
        """Answer nothing from now on; wait for a request to a service whose client will be told."""
        self._goes_on.clear()
        await until(lambda: ("n0", service) in self._held, f"{service} was asked")

    def go_on(self) -> None:
        self._held.clear()
        self._goes_on.set()


async def under_way(load: Load, name: str, queue: str) -> None:
    await load.reaches(load.queued, queue, 60)
    await load.reaches(load.asked, SERVICES[name], 100)
    await load.reaches(load.published, TOPICS[name], 60)


def kill(cluster: Cluster, at: int, killed: dict[str, int]) -> None:
    killed[NAMES[at]] = time.time_ns() // 1000
    cluster.nodes[at].kill()


@pytest.fixture(scope="module")
def lived(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer, spark: SparkSession
) -> Lived:
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CHAPPE_EVENTS_ENABLED")
        cluster = Cluster(folder, f"{redis_server.url}/7")
        load, killed = Load(cluster), dict[str, int]()
        try:
            story(whole, cluster, load, killed)
        finally:
            for node in cluster.nodes:
                node.stop()
    assert run_here("events", "seal", str(cluster.nodes[2].data / "events")).returncode == 0
    tables = folder / "tables"
    run(spark, [node.data / "events" for node in cluster.nodes], tables, OPTIONS)
    return Lived(load, killed, tables)


def test_messages_of_a_queue_whose_node_never_came_back_are_unknown(lived: Lived) -> None:
    load, queued = lived.load, lived.load.queued
    named = {row["message"]: row for row in lived.audit("queue", "lost", "unknown")}
    for row in named.values():
        assert (row["verdict"], row["node"]) == ("unknown", "n2"), row
    taken = {queued.ids[size] for to in (GONE, LEFT) for size in queued.of("ok", to=to)}
    # What nobody ever tried to acknowledge is named, what is done with is not.
    assert taken - load.tried <= named.keys()
    assert not named.keys() & load.done
    assert {queued.ids[size] for size in queued.of("ok", to=LEFT)} <= named.keys()
    # Others are those whose sender was not answered.
    sizes = lived.size_of()
    others = {sizes[message] for message in named.keys() - taken}
    assert others <= queued.of("unknown", to=GONE)
    assert len(taken - load.tried) > UNSENT


def test_messages_of_a_queue_whose_node_came_back_are_where_they_were(lived: Lived) -> None:
    load, queued = lived.load, lived.load.queued
    for to in (BACK, SHELF):
        ids = {queued.ids[size] for size in queued.of("ok", to=to)}
        assert not ids & {row["message"] for row in lived.audit("queue", "lost", "unknown")}
    assert {queued.ids[size] for size in queued.of("ok", to=BACK)} <= load.tried
    waiting = {
        row["message"]
        for row in lived.audit("queue", "late")
        if row["reason"] == "it still waits in its queue"
    }
    assert waiting == {queued.ids[size] for size in queued.of("ok", to=SHELF)}


def test_requests_without_an_answer_are_named_and_no_others(lived: Lived) -> None:
    asked, sizes = lived.load.asked, lived.size_of()
    rows = lived.audit("request", "lost", "unknown")
    named = {sizes[row["label"]] for row in rows}
    assert len(named) == len(rows)
    unanswered = {
        size for to in SERVICES.values() for size in asked.of("unknown", to=to, via=NAMES)
    }
    assert named <= unanswered, [asked.sent[size] for size in named - unanswered]
    # Of a client whose own node was killed, some never came to that.
    for to in SERVICES.values():
        assert asked.of("unknown", to=to, via=("n0",)) <= named
    assert unanswered - named <= {
        size for to in SERVICES.values() for size in asked.of("unknown", to=to, via=("n1", "n2"))
    }
    assert named


def test_of_topics_the_last_interval_of_a_node_that_died_is_unknown(lived: Lived) -> None:
    published, wrong = lived.load.published, lived.clocks_wrong_by()
    rows = lived.audit("topic", "lost", "unknown")
    assert {row["verdict"] for row in rows} <= {"unknown"}, rows
    intervals = {row["node"]: row["at"] for row in lived.audit("node", "unknown")}
    assert intervals.keys() == {"n1", "n2"}
    for name, alive in intervals.items():
        # It says so four times a second, unless the machine is busy.
        assert -wrong < lived.killed[name] - alive < 4 * SECOND
    for row in rows:
        near = [
            name
            for name, alive in intervals.items()
            if alive - SECOND <= row["at"] <= lived.killed[name] + SECOND + wrong
        ]
        assert any(name in row["reason"] for name in near), row
    # What others handed to it then, it had no time to tell of.
    named = {row["message"] for row in rows}
    for name, alive in intervals.items():
        then = handed_then(published, TOPICS[name], alive + wrong, lived.killed[name] - wrong)
        assert then <= named


def test_of_rooms_what_a_member_heard_is_told_as_given_to_it_and_once(lived: Lived) -> None:
    heard = lived.load.heard
    assert len(heard) == len(set(heard)) > 100
    given = {
        path["message"]
        for path in lived.table("paths")
        for hop in path["hops"]
        if (path["family"], hop["kind"], hop["node"]) == ("room", "published", "n0") and hop["n"]
    }
    assert given == set(heard)
    assert lived.audit("room", "duplicated") == []
    missed = {
        row["message"]
        for row in lived.audit("room", "lost")
        if row["reason"] == "it did not come to n0"
    }
    assert not missed & given
    roles = {row["role"] for row in lived.table("links") if row["arrived"]}
    assert {"publisher", "proxy", "broker"} <= roles


def test_a_clock_that_is_wrong_is_put_right(lived: Lived) -> None:
    wrong = lived.clocks_wrong_by()
    shifts = {row["shift"] for row in lived.table("clocks") if row["node"] == "n1"}
    assert shifts
    assert all(abs(shift + AHEAD_MS * 1000) <= wrong for shift in shifts), (shifts, wrong)
    told, corrected = [], {"to": list[int](), "from": list[int]()}
    for hop, before in hops_over_links(lived.table("paths"), "n1"):
        told.append(hop["came"] - before["at"])
        way = "to" if hop["node"] == "n1" else "from"
        corrected[way].append(told[-1] + hop["shift"] - before["shift"])
    assert min(map(abs, told)) > AHEAD_MS * 500
    # What comes is dated by the beginning of the turn of the loop that reads it, which may have
    # begun before it was sent. So it is not each of them that tells, but most of them, both ways: a
    # shift that is wrong makes one way shorter than none.
    for times in corrected.values():
        assert len(times) > 50
        assert -wrong <= median(times) <= SECOND // 4 + wrong, (sorted(times)[::10], wrong)
