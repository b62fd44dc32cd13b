"""`recorder.tell`: a kind needs no words of its own, the schema says how it is told. D1"""

from __future__ import annotations

from typing import Any

import pytest

from chappe.events.eventrecorder import EventRecorder
from chappe.events.sampling import Sampling
from chappe.events.schema import KINDS, Kind
from tests.events.test_eventrecorder import Told, message, tell_everything
from tests.events.test_slate import Life

ABOUT = ("app", "message", "label", "target", "n")
IDS = range(10**18, 10**18 + 300)


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds as rooms and push will have them."""
    for name, kind in {
        "relayed": Kind("", ABOUT, part="publish", family="room", told="sampled"),
        "clicked": Kind("", ABOUT, part="note", told="exact"),
        "joined": Kind("", ABOUT),
    }.items():
        monkeypatch.setitem(KINDS, name, kind)


def test_a_kind_that_is_sampled_is_told_of_the_messages_that_others_are_told_of() -> None:
    told, sampling = Told(0.3), Sampling(0.3)
    for one in IDS:
        told.recorder.tell("relayed", "shop", message=one, target="room:1", n=2)
    told.recorder.published("shop", [message(one, to="topic:t") for one in IDS], 1)
    rows = told.rows()
    found = {
        kind: [row["message"] for row in rows if row["kind"] == kind]
        for kind in ("relayed", "published")
    }
    assert found["relayed"] == found["published"] == [one for one in IDS if sampling.takes(one)]
    assert {row["share"] for row in rows} == {sampling.share}
    assert {(row["target"], row["n"]) for row in rows if row["kind"] == "relayed"} == {
        ("room:1", 2)
    }


def test_without_an_id_it_is_told_whole() -> None:
    told = Told(0.0)
    told.recorder.tell("relayed", "shop", target="room:1", n=7)
    [row] = told.rows()
    assert (row["n"], row["share"]) == (7, 1.0)


def test_where_all_are_recorded_all_are_told_and_so_is_the_share() -> None:
    told = Told(1.0)
    for one in IDS:
        told.recorder.tell("relayed", "shop", message=one)
    assert [(row["message"], row["share"]) for row in told.rows()] == [(one, 1.0) for one in IDS]


@pytest.mark.parametrize("kind", ["clicked", "joined"])
def test_other_kinds_are_told_of_every_message_whatever_the_share_is(kind: str) -> None:
    told = Told(0.0)
    for one in IDS:
        told.recorder.tell(kind, "shop", message=one)
    assert [(row["message"], row["share"]) for row in told.rows()] == [(one, 1.0) for one in IDS]


def on_the_slate(life: Life) -> list[dict[str, Any]]:
    return [row for row in life.after_a_kill() if row["kind"] not in ("node_started", "node_alive")]


def test_a_kind_that_is_exact_outlives_a_kill_and_others_do_not() -> None:
    life = Life()
    recorder = EventRecorder(life.events, 1.0, lambda: 1_000_000)
    for kind in ("relayed", "clicked", "joined"):
        recorder.tell(kind, "shop", message=5)
    assert [(row["kind"], row["message"]) for row in on_the_slate(life)] == [("clicked", 5)]


def test_kinds_with_words_of_their_own_are_told_as_the_schema_says() -> None:
    life = Life()
    recorder = EventRecorder(life.events, 1.0, lambda: 1_000_000)
    tell_everything(recorder)
    kept = {(row["kind"], row.get("group_name")) for row in on_the_slate(life)}
    life.timer.ring()
    told = {row["kind"] for row in life.log.rows}
    # Of a queue's message, that a group passes over it is exact, too.
    assert {kind for kind, _group in kept - {("dropped", "g")}} == {
        kind for kind in told if KINDS[kind].told == "exact"
    }
    none = Told(0.0)
    tell_everything(none.recorder)
    queued = [row for row in none.rows() if row.get("target") != "queue:q" and "message" in row]
    assert [row["kind"] for row in queued if KINDS[row["kind"]].told == "sampled"] == []
