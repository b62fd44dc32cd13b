"""What a cluster records: each hop of a message is told by the nodes at both of its ends."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from chappe.client import Client
from chappe.events.sampling import Sampling
from tests.events.tables import Row, check_serials, count, of, rows
from tests.faults.process import NodeProcess
from tests.faults.test_workers import on_each_worker, reach_each_other
from tests.faults.trio import ROOMS_UNUSED, Trio, story, until
from tests.servers import RedisServer

SHARE = 0.3
CONFIG = f"""
[events]
enabled = true
share = {SHARE}
seal_s = 3600
"""


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the environment does not switch it off."""
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")


class Talk:
    """Everybody talks to everybody; which ids went where."""

    def __init__(self) -> None:
        self.users: dict[int, tuple[str, str]] = {}
        self.topics: dict[int, str] = {}
        self.jobs: dict[int, str] = {}

    async def __call__(self, trio: Trio) -> None:
        people = [await trio.client(at, f"p{at}") for at in range(3)]
        for person in people:
            await person.subscribe("topic:news")
        await until(lambda: self._all_hear(people), "all subscribers hear")
        for at, person in enumerate(people):
            for n in range(40):
                to = (at + 1 + n % 2) % 3
                message = int(await person.send(f"user:p{to}", n))
                self.users[message] = (f"n{at}", f"n{to}")
                published = await person.publish(f"topic:{'news' if n % 2 else 'other'}", n)
                if n % 2:
                    self.topics[int(published.message)] = f"n{at}"
        await people[0].create("queue:jobs")
        for n in range(10):
            self.jobs[int(await people[n % 3].send("queue:jobs", n))] = f"n{n % 3}"
        for item in await people[2].fetch("queue:jobs", n=10):
            await item.ack()
        for person in people:
            await person.close()

    async def _all_hear(self, people: list[Client]) -> bool:
        """Whether a topic's home knows of the subscribers of all nodes."""
        told = [await person.publish("topic:news", "?") for person in people]
        return all(one.nodes == 3 for one in told)


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> tuple[Talk, list[Row]]:
    """A talk, and all that the nodes recorded of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CHAPPE_EVENTS_ENABLED")
        trio = Trio(tmp_path_factory.mktemp("told"), redis_server.url, CONFIG)
    talk = Talk()
    try:
        story(talk, trio)
    finally:
        trio.stop()
    return talk, rows(*(node.data / "events" for node in trio.nodes))


def hops(table: list[Row], *kinds: str) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in of(table, *kinds):
        if "message" in row:
            found[row["message"]].append(row)
    return found


def test_a_message_is_recorded_on_all_its_nodes_or_on_none(
    told: tuple[Talk, list[Row]],
) -> None:
    talk, table = told
    check_serials(table)
    sampling, sent = Sampling(SHARE), hops(table, "sent")
    taken = [message for message in talk.users if sampling.takes(message)]
    assert 10 <= len(taken) <= 70
    for message, (first, last) in talk.users.items():
        if not sampling.takes(message):
            assert message not in sent
            continue
        begin, end = sorted(sent[message], key=lambda row: row["n"])
        assert (begin["node"], begin["went_to"], begin["n"]) == (first, [last], 0)
        assert (end["node"], end["came_from"], end["n"]) == (last, first, 1)
        assert "came_from" not in begin
        assert {begin["share"], end["share"]} == {sampling.share}


def test_a_published_message_is_followed_from_node_to_node(told: tuple[Talk, list[Row]]) -> None:
    talk, table = told
    sampling, published = Sampling(SHARE), hops(table, "published")
    for message, first in talk.topics.items():
        found = published.get(message, [])
        if not sampling.takes(message):
            assert not found
            continue
        handed = {(row["node"], to) for row in found for to in row.get("went_to", ())}
        came = {(row["came_from"], row["node"]) for row in found if "came_from" in row}
        assert handed == came
        assert [row["node"] for row in found if "came_from" not in row] == [first]
        assert sum(row["n"] for row in found) == 3


def test_what_becomes_of_a_queue_is_told_whole_by_the_node_it_lives_on(
    told: tuple[Talk, list[Row]],
) -> None:
    talk, table = told
    for kind in ("stored", "lent", "acked"):
        found = of(table, kind)
        assert sorted(row["message"] for row in found) == sorted(talk.jobs)
        assert len({row["node"] for row in found}) == 1
        assert {row["share"] for row in found} == {1.0}


def test_a_message_to_a_queue_is_followed_from_the_node_of_its_sender(
    told: tuple[Talk, list[Row]],
) -> None:
    talk, table = told
    sent, stored = hops(table, "sent"), hops(table, "stored")
    for message, first in talk.jobs.items():
        (row,) = stored[message]
        home = row["node"]
        assert row.get("came_from", home) == first
        if first == home:
            assert message not in sent
            continue
        (handed,) = sent[message]
        assert (handed["node"], handed["went_to"], handed["n"]) == (first, [home], 0)
        assert (handed["target"], handed["sender"]) == ("queue:jobs", f"user:p{first[1:]}")
        assert (handed["share"], handed["bytes"]) == (1.0, row["bytes"])
        # One clock. When it came is known to a turn of the home's loop only.
        assert handed["came"] <= handed["at"] <= row["at"]
        assert row["came"] <= row["at"]


def test_links_tell_how_far_clocks_are_apart(told: tuple[Talk, list[Row]]) -> None:
    _, table = told
    pairs = {(a, b) for a in ("n0", "n1", "n2") for b in ("n0", "n1", "n2") if a != b}
    assert {(row["node"], row["peer"]) for row in of(table, "link_up")} == pairs
    beats = of(table, "link")
    assert {(row["node"], row["peer"]) for row in beats} == pairs
    for row in beats:
        # One clock: half a round trip is all that it can be wrong by, and a little.
        assert abs(row["ahead"]) <= row["round_trip"] + 1_000


def test_workers_record_into_one_folder(tmp_path: Path) -> None:
    config = "workers = 2\n[events]\nenabled = true\nshare = 1.0\nseal_s = 3600\n"
    node = NodeProcess(tmp_path, config + ROOMS_UNUSED)
    try:
        with ExitStack() as stack:
            one, other = on_each_worker(node, stack).values()
            reach_each_other(one, other)
    finally:
        node.stop()
    table = rows(node.data / "events")
    check_serials(table)
    assert {row["node"] for row in table} == {"worker-1", "worker-2"}
    assert count(table)["node_stopped"] == 2
    crossed = [row for row in of(table, "sent", "published") if "came_from" in row]
    assert {row["node"] for row in crossed} == {"worker-1", "worker-2"}
