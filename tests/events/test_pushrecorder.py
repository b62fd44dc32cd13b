"""What push tells: each client of a private note, counts of a topic's. D1, P9"""

from __future__ import annotations

from typing import Any

import pytest

from chappe.events.counting import CountingRecorder
from chappe.events.eventrecorder import EventRecorder
from chappe.events.pushrecorder import Ack, PushRecorder, is_of_topic
from chappe.events.pushrecorder import Told as Named
from tests.events.test_eventrecorder import Told
from tests.events.test_slate import Life

PRIVATE = Named("shop", "p0a0000165f2c3d4", "j0a0000065f2c3d4")
TOPIC = Named("shop", "m0a0000165f2c3d4", "j0a0000265f2c3d4")
ABOUT = ("kind", "label", "job", "client", "n", "reason", "came", "came_from")


def about(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ABOUT)


def test_a_send_says_what_it_is_for() -> None:
    told = Told(0.0)
    push = PushRecorder(told.recorder)
    push.sent(PRIVATE, "user:bob", 3, 12, 900_000, 5_000_000, offline=1, went_to=["b"])
    push.sent(TOPIC, "topic:news", 70_000, 12, 900_000, 5_000_000)
    one, other = told.rows()
    assert (one["app"], one["label"], one["job"], one["target"]) == (*PRIVATE, "user:bob")
    assert (one["n"], one["offline"], one["bytes"], one["expires"]) == (3, 1, 12, 5_000_000)
    assert (one["came"], one["went_to"], one["share"]) == (900_000, ["b"], 1.0)
    assert (other["n"], other["offline"], other["went_to"]) == (70_000, None, None)


def test_a_private_note_is_told_client_by_client_in_one_run() -> None:
    told = Told(0.0)
    push = PushRecorder(told.recorder)
    push.handed(PRIVATE, ["c1", "c2"], "live", 900_000, "b")
    push.dropped(PRIVATE, "collapsed", ["c3"])
    push.retracted(PRIVATE, ["c1"], "cancelled")
    push.bridged(PRIVATE, ["c4"], "handed")
    push.clicked(PRIVATE, "c1")
    named = (PRIVATE.id, PRIVATE.job)
    assert [about(row) for row in told.rows()] == [
        ("push_handed", *named, "c1", None, "live", 900_000, "b"),
        ("push_handed", *named, "c2", None, "live", 900_000, "b"),
        ("push_dropped", *named, "c3", None, "collapsed", None, None),
        ("push_retracted", *named, "c1", None, "cancelled", None, None),
        ("push_bridged", *named, "c4", None, "handed", None, None),
        ("push_clicked", *named, "c1", None, None, None, None),
    ]


def test_a_broadcast_is_one_row_however_many_get_it() -> None:
    told = Told(0.0)
    push = PushRecorder(told.recorder)
    push.handed(TOPIC, [f"c{n}" for n in range(70_000)], "live")
    push.broadcast(TOPIC, 7, "login")
    push.retracted(TOPIC, ["c1", "c2"], "cancelled")
    push.bridged(TOPIC, ["c1", "c2"], "handed")
    assert [(row["kind"], row["n"], row.get("client")) for row in told.rows()] == [
        ("push_handed", 70_000, None),
        ("push_handed", 7, None),
        ("push_retracted", 2, None),
        ("push_bridged", 2, None),
    ]


def test_acknowledgements_are_told_singly_of_clients_and_by_counts_of_topics() -> None:
    told = Told(0.0)
    PushRecorder(told.recorder).acked(
        [
            Ack("c1", TOPIC, "live", 100),
            Ack("c1", PRIVATE, "login", 150),
            Ack("c2", TOPIC, "live", 300),
            Ack("c3", TOPIC, "login", 500),
            Ack("c2", PRIVATE, "live", 170),
        ]
    )
    topic, private = (TOPIC.id, TOPIC.job), (PRIVATE.id, PRIVATE.job)
    assert [about(row) for row in told.rows()] == [
        ("push_acked", *topic, None, 2, "live", 200, None),
        ("push_acked", *topic, None, 1, "login", 500, None),
        ("push_acked", *private, "c1", None, "login", 150, None),
        ("push_acked", *private, "c2", None, "live", 170, None),
    ]


def test_a_comet_that_was_handed_a_note_says_so_though_nobody_is_there() -> None:
    told = Told(0.0)
    push = PushRecorder(told.recorder)
    push.handed(PRIVATE, [], "live", 900_000, "b")
    push.absent(PRIVATE, 2, "b")
    push.dropped(PRIVATE, "cancelled")
    push.dropped(TOPIC, "expired", count=7)
    assert [(row["kind"], row["n"]) for row in told.rows()] == [
        ("push_handed", 0),
        ("push_absent", 2),
        ("push_dropped", None),
        ("push_dropped", 7),
    ]


def test_what_is_counted_outlives_a_kill() -> None:
    life = Life()
    push = PushRecorder(EventRecorder(life.events, 1.0, lambda: 1_000_000))
    push.sent(PRIVATE, "many:", 2, 12, 900_000, 5_000_000)
    push.handed(PRIVATE, ["c1", "c2"], "live")
    push.acked([Ack("c1", PRIVATE, "live", 1), Ack("c2", PRIVATE, "live", 2)])
    push.clicked(PRIVATE, "c1")
    push.dropped(TOPIC, "cancelled")
    kept = [row["kind"] for row in life.after_a_kill() if row["kind"].startswith("push_")]
    assert kept == ["push_sent", "push_acked", "push_acked", "push_clicked", "push_dropped"]


def test_whose_a_note_is_follows_from_its_id() -> None:
    assert is_of_topic(TOPIC.id)
    assert not is_of_topic(PRIVATE.id)


def test_what_is_told_of_many_has_one_of_each_and_no_other_columns() -> None:
    told = Told(1.0)
    with pytest.raises(AssertionError, match="one for each"):
        told.recorder.tell_each("push_handed", "shop", 2, {"client": ["c1"]})
    with pytest.raises(AssertionError, match="columns"):
        told.recorder.tell_each("push_handed", "shop", 1, {"session": ["s"]})
    with pytest.raises(AssertionError, match="one by one"):
        told.recorder.tell_each("sent", "shop", 1, {"message": [5]})
    told.recorder.tell_each("push_handed", "shop", 0, {"client": []})
    assert told.rows() == []
    CountingRecorder().tell_each("push_handed", "shop", 1, {"client": ["c1"]})
