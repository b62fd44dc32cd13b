"""What real nodes record: read back from the tables, after ends in order and others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

import chappe.blocking
from chappe.blocking import Client
from chappe.events.schema import KINDS, VERSION
from chappe.node.sealing import seal
from chappe.node.slates import left_slates
from tests.cli.process import run_here
from tests.events.tables import WAIT_S, Row, check_serials, count, of, rows, until, until_told
from tests.faults.mounts import Memory
from tests.faults.process import Api, NodeProcess

ALL = "[events]\nenabled = true\nshare = 1.0\nseal_s = {seal_s}\n"
LOG = "events/_log/node"


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the environment does not switch it off."""
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path, ALL.format(seal_s=3600))
    yield node
    node.kill()


def connect(node: NodeProcess, name: str) -> Client:
    return chappe.blocking.connect(node.addresses["websocket"], as_=f"user:{name}")


def written(node: NodeProcess) -> float:
    with closing(Api(node)) as api:
        return api.metric("events_written_total")


def traffic(node: NodeProcess) -> dict[str, list[int]]:
    """Some of everything; the ids of what was sent where."""
    sent: dict[str, list[int]] = {}
    with connect(node, "ann") as ann, connect(node, "bob") as bob:
        bob.subscribe("topic:news")
        for n in range(3):
            sent.setdefault("topic:news", []).append(int(ann.publish("topic:news", n).message))
            sent.setdefault("user:bob", []).append(int(ann.send("user:bob", "x" * n)))
        ann.create("queue:jobs", attempts_max=2)
        sent["queue:jobs"] = [int(ann.send("queue:jobs", n)) for n in range(3)]
        done, again, dead = bob.fetch("queue:jobs", n=3)
        done.ack()
        again.nack()
        dead.nack()
        for _ in range(2):
            (item,) = bob.fetch("queue:jobs", n=1, wait_s=WAIT_S)
            if int(item.id) == sent["queue:jobs"][1]:
                item.ack()
            else:
                item.nack()
        # Handing back is answered before what follows from it is durable.
        until(lambda: list(ann.dead_letters("queue:jobs")), "one is dead")
        bob.provide("service:echo", lambda data: data)
        assert ann.request("service:echo", "hello") == "hello"
        ann.send("user:bob", "last")
    return sent


def life_of(table: list[Row], message: int) -> list[str]:
    return [row["kind"] for row in table if row.get("message") == message]


def test_the_whole_life_of_everything_is_told_once(node: NodeProcess) -> None:
    sent = traffic(node)
    node.stop()
    table = rows(node.data / "events")
    check_serials(table)
    assert (table[0]["kind"], table[-1]["kind"]) == ("node_started", "node_stopped")
    for message in sent["topic:news"]:
        (row,) = [row for row in table if row.get("message") == message]
        assert (row["kind"], row["target"], row["n"]) == ("published", "topic:news", 1)
        assert row["came"] <= row["at"] < row["came"] + 10_000_000
    sizes = [row["bytes"] for row in of(table, "sent") if row["message"] in sent["user:bob"]]
    assert sizes == [2, 3, 4]
    done, again, dead = sent["queue:jobs"]
    assert life_of(table, done) == ["stored", "lent", "acked"]
    assert life_of(table, again) == ["stored", "lent", "returned", "lent", "acked"]
    assert life_of(table, dead) == ["stored", "lent", "returned", "lent", "died"]
    assert [row["attempt"] for row in of(table, "lent") if row["message"] == again] == [1, 2]
    (asked,), (answered,) = of(table, "asked"), of(table, "answered")
    assert (asked["label"], asked["at"]) == (answered["label"], answered["came"])
    assert (asked["target"], asked["sender"]) == ("service:echo", "user:ann")
    assert "reason" not in answered
    opened, closed = of(table, "session_opened"), of(table, "session_closed")
    assert {row["session"] for row in opened} == {row["session"] for row in closed}
    assert all(row["came"] < row["at"] for row in closed)


def test_every_event_has_the_columns_of_its_kind_and_no_others(node: NodeProcess) -> None:
    traffic(node)
    node.stop()
    always = {"v", "kind", "node", "boot", "serial", "at", "share", "date", "hour"}
    for row in rows(node.data / "events"):
        assert set(row) - always <= set(KINDS[row["kind"]].columns), row
        assert (row["v"], row["share"], row["node"]) == (VERSION, 1.0, "node")
        assert time.strftime("%Y-%m-%dT%H", time.gmtime(row["at"] / 1e6)) == (
            f"{row['date']}T{row['hour']}"
        )


def test_of_a_node_that_was_killed_all_is_there_up_to_its_last_sign_of_life(
    node: NodeProcess,
) -> None:
    sent = traffic(node)
    until_told(node.data / LOG)
    before = written(node)
    assert before >= 30
    node.kill()
    folder = node.data / "events"
    assert not list(folder.glob("date=*")), "nothing was sealed yet"
    assert seal(folder).nodes == ["node"]
    table = rows(folder)
    check_serials(table)
    assert len(table) >= before
    assert all(life_of(table, message) for ids in sent.values() for message in ids)
    alive = of(table, "node_alive")[-1]["at"]
    assert alive >= max(row["at"] for row in of(table, "session_closed"))
    assert not of(table, "node_stopped")
    (gone,) = of(table, "node_gone")
    assert (gone["boot"], gone["at"]) == (table[0]["boot"], alive)
    assert gone is table[-1]
    # To do it again changes nothing.
    assert seal(folder).events == 0
    assert rows(folder) == table
    # And neither does the next life, which begins a log of its own behind it.
    node.start()
    traffic(node)
    node.stop()
    more = rows(folder)
    check_serials(more)
    assert [row for row in more if row["boot"] == table[0]["boot"]] == table
    assert count(more)["node_started"] == 2
    # The other life ended in order.
    assert seal(folder).events == 0
    assert len(of(more, "node_gone")) == 1


def test_what_a_killed_node_left_its_next_life_copies(node: NodeProcess) -> None:
    traffic(node)
    until_told(node.data / LOG)
    node.kill()
    node.start()
    node.stop()
    table = rows(node.data / "events")
    check_serials(table)
    assert count(table)["node_started"] == 2
    assert count(table)["stored"] == 3


def test_sealing_passes_over_a_node_that_runs(node: NodeProcess) -> None:
    said = run_here("events", "seal", str(node.data / "events"), "--json")
    assert (said.returncode, said.stdout) == (
        0,
        '{"nodes": [], "alive": ["node"], "events": 0, "damaged": 0, "failed": {}}\n',
    )
    assert run_here("events", "seal", str(node.data / "nothing")).returncode == 2


def test_segments_are_sealed_in_time_and_go_once_they_are_copied(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path, ALL.format(seal_s=0.5))
    try:
        logs = node.data / "events/_log/node"
        with connect(node, "ann") as ann:
            for _ in range(3):
                before = len(list((node.data / "events").glob("date=*/**/*.parquet")))
                ann.send("user:ann", 1)
                until(
                    lambda before=before: (
                        len(list((node.data / "events").glob("date=*/**/*.parquet"))) > before
                        or ann.send("user:ann", 1) is None
                    ),
                    "a segment is copied",
                )
            until(lambda: len(list(logs.glob("*.log"))) <= 3, "copied segments go")
        node.stop()
        check_serials(rows(node.data / "events"))
        notes = list((node.data / "events/_copied/node").glob("*.json"))
        assert len(notes) <= 4, "notes of segments that are gone are kept"
    finally:
        node.kill()


def fill(filler: Path) -> None:
    """Leave no room on its disk."""
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)


def test_a_full_disk_stops_no_message_and_is_told_as_missed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        memory = Memory(tmp_path / "small", 12 * 1024)
        stack.callback(memory.unmount)
        config = ALL.format(seal_s=3600) + f'folder = "{memory.at}/events"\n'
        node = NodeProcess(tmp_path / "node", config)
        stack.callback(node.kill)
        ann = stack.enter_context(connect(node, "ann"))
        filler = memory.at / "filler"
        fill(filler)
        with closing(Api(node)) as api:

            def is_missed() -> bool:
                ann.send("user:ann", "x")
                ann.receive(WAIT_S)
                return api.metric("events_missed_total") > 0

            until(is_missed, "events are missed")
        filler.unlink()
        with closing(Api(node)) as api:
            before = api.metric("events_written_total")
            until(
                lambda: ann.send("user:ann", "y") and api.metric("events_written_total") > before,
                "events are written again",
            )
        ann.close()
        node.stop()
        table = rows(memory.at / "events")
        check_serials(table)
        missed = of(table, "missed")
        assert missed
        assert all(row["n"] > 0 and "disk full" in row["reason"] for row in missed)


def test_a_node_that_was_killed_starts_on_a_full_disk_and_tells_all_once_it_has_room(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        memory = Memory(tmp_path / "small", 16 * 1024)
        stack.callback(memory.unmount)
        config = ALL.format(seal_s=3600) + f'folder = "{memory.at}/events"\n'
        node = NodeProcess(tmp_path / "node", config)
        stack.callback(node.kill)
        log = memory.at / LOG
        with connect(node, "ann") as ann:
            ann.create("queue:jobs")
            sent = [int(ann.send("queue:jobs", n)) for n in range(20)]
            node.kill()
        (slate,) = left_slates(log)
        # What was set apart for such a day is used up already.
        (log / "reserve").unlink()
        fill(memory.at / "filler")
        node.start()
        assert slate in left_slates(log)
        (memory.at / "filler").unlink()
        until(lambda: slate not in left_slates(log), "what was on the slate is in the log")
        node.stop()
        table = rows(memory.at / "events")
        check_serials(table)
        assert [row["message"] for row in of(table, "stored")] == sent


def test_a_share_below_one_samples_messages_and_keeps_all_of_queues(tmp_path: Path) -> None:
    config = "[events]\nenabled = true\nshare = 0.0\nseal_s = 3600\n"
    node = NodeProcess(tmp_path, config)
    try:
        traffic(node)
    finally:
        node.stop()
    found = count(rows(node.data / "events"))
    assert (found["stored"], found["lent"], found["acked"], found["died"]) == (3, 5, 2, 1)
    assert (found["asked"], found["answered"]) == (1, 1)
    assert found["sent"] == found["published"] == 0
    assert found["session_opened"] == 2
