"""What the recorder makes of what it is told: short, and nothing that was not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.events.counting import CountingRecorder
from chappe.events.eventlog import EventLog
from chappe.events.eventrecorder import EventRecorder
from chappe.events.record import decode_chunks, rows_of
from chappe.events.sampling import Sampling
from chappe.events.schema import KINDS
from chappe.message import Message
from tests.events.test_eventlog import KeptLog, StepTimer

ALWAYS = {"v", "kind", "node", "boot", "serial", "at", "share"}


class Told:
    """A recorder, and what it wrote down."""

    def __init__(self, share: float = 1.0) -> None:
        self.log, self.timer = KeptLog(), StepTimer()
        self.now = 1_000_000
        events = EventLog("a", self.log, self.timer, lambda: self.now)
        self.recorder = EventRecorder(events, share, lambda: self.now)
        events.start()
        self.log.rows.clear()

    def rows(self) -> list[dict[str, Any]]:
        self.now += 250_000
        self.timer.ring()
        rows, self.log.rows = self.log.rows, []
        return [row for row in rows if row["kind"] != "node_alive"]


def message(id: int, sender: str = "user:a", to: str = "user:b", payload: bytes = b"x") -> Message:
    return Message(id, sender, to, 5, payload)


runs = st.lists(
    st.tuples(st.integers(1, 30), st.sampled_from(["user:a", "user:z"]), st.binary(max_size=4)),
    min_size=1,
    max_size=40,
)


@given(runs, st.booleans(), st.sampled_from(["", "b"]))
def test_a_run_comes_out_as_its_messages_were(
    made: list[tuple[int, str, bytes]], following: bool, came_from: str
) -> None:
    messages, last = [], 10**18
    for step, sender, payload in made:
        last += 1 if following else step
        messages.append(message(last, sender, "user:b", payload))
    told = Told()
    told.recorder.came = 900_000
    told.recorder.sent("shop", messages, 2, came_from, ["c", "d"])
    rows = told.rows()
    assert [(row["message"], row["sender"], row["bytes"]) for row in rows] == [
        (one.id, one.sender, len(one.payload)) for one in messages
    ]
    for row in rows:
        assert (row["kind"], row["app"], row["target"]) == ("sent", "shop", "user:b")
        assert (row["came"], row["n"], row["went_to"]) == (900_000, 2, ["c", "d"])
        assert row.get("came_from", "") == came_from
        assert row["at"] == 1_000_000


def test_a_run_of_ids_that_follow_each_other_costs_few_bytes() -> None:
    told = Told()
    sizes: list[int] = []
    append = told.log.append
    told.log.append = lambda record, done, idle: (  # type: ignore[method-assign]
        sizes.append(len(record)),
        append(record, done, idle=idle),
    )[1]
    told.recorder.sent("shop", [message(10**18 + n) for n in range(500)], 1)
    assert len(told.rows()) == 500
    assert sum(sizes) < 200


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_only_what_is_sampled_is_told_and_all_of_it_is_counted(share: float) -> None:
    told, sampling = Told(share), Sampling(share)
    messages = [message(10**18 + 7 * n) for n in range(300)]
    told.recorder.sent("shop", messages, 1)
    told.recorder.published("shop", messages, 5)
    told.recorder.forwarded("shop", messages, "", ["b"], promised=True)
    told.recorder.dropped("shop", "slow_consumer", 300, "user:b", [one.id for one in messages])
    told.recorder.declined("shop", messages, "nobody")
    chosen = [one.id for one in messages if sampling.takes(one.id)]
    rows = told.rows()
    assert [row["message"] for row in rows] == chosen * 5
    assert all(row["share"] == sampling.share for row in rows)
    recorder = told.recorder
    assert (recorder.sends, recorder.publishes, recorder.published_deliveries) == (300, 300, 1500)
    assert recorder.drops == {"slow_consumer": 300}


@given(
    st.lists(
        st.tuples(st.integers(-300, 300), st.integers(1, 70), st.booleans()),
        min_size=1,
        max_size=60,
    )
)
def test_runs_one_after_the_other_are_sampled_as_each_message_is(
    steps: list[tuple[int, int, bool]],
) -> None:
    """What was found of one run must not be held against the next, ahead of it or behind."""
    told, sampling, at, expected = Told(0.02), Sampling(0.02), 10**18, []
    for step, count, topic in steps:
        at += step
        messages = [message(at + n) for n in range(count)]
        (told.recorder.published if topic else told.recorder.sent)("shop", messages, 1)
        expected += [one.id for one in messages if sampling.takes(one.id)]
        at += count
    assert sorted(row["message"] for row in told.rows()) == sorted(expected)


def test_a_run_of_another_node_is_sampled_whatever_the_order_of_its_ids() -> None:
    """Its home may have had them from several nodes."""
    told, sampling = Told(0.02), Sampling(0.02)
    chosen = next(one for one in range(10**18, 10**18 + 1000) if sampling.takes(one))
    # After this, what follows the chosen one is known not to be.
    told.recorder.sent("shop", [message(chosen + 1)], 1)
    mixed = [message(chosen + 1), message(chosen), message(chosen + 2)]
    told.recorder.published("shop", mixed, 1, "b")
    told.recorder.sent("shop", mixed, 1, "b")
    assert [row["message"] for row in told.rows()] == [chosen] * 2


def test_every_request_is_told_whatever_the_share_is() -> None:
    told = Told(0.01)
    labels = [f"tag.{10**18 + n}" for n in range(200)]
    for label in labels:
        told.recorder.asked("shop", label, "user:a", "service:s", "s", 1, 5)
        told.recorder.answered("shop", label, 5, "overload")
    rows = told.rows()
    for kind in ("asked", "answered"):
        assert [row["label"] for row in rows if row["kind"] == kind] == labels
    assert all(row["share"] == 1.0 for row in rows)


def test_every_message_to_a_queue_is_told_at_both_ends_whatever_the_share_is() -> None:
    told = Told(0.0)
    told.recorder.handed("shop", "queue:q", 4, "user:a", 3, 5, 6, "b")
    told.recorder.stored("shop", "queue:q", [Queued(4)], 7, "a")
    told.recorder.stored("shop", "queue:q", [Queued(5)], 7)
    sent, stored, own = told.rows()
    assert (sent["kind"], sent["message"], sent["target"]) == ("sent", 4, "queue:q")
    assert (sent["came"], sent["at"], sent["went_to"], sent["n"]) == (5, 6, ["b"], 0)
    assert (sent["sender"], sent["bytes"], sent["share"]) == ("user:a", 3, 1.0)
    assert (stored["message"], stored["came_from"], stored["came"]) == (4, "a", 7)
    assert "came_from" not in own


class Queued:
    """A message as a queue's journal has it."""

    def __init__(self, id: int, due_ms: int | None = None) -> None:
        self.id, self.sender, self.ts_ms = id, "user:a", 4
        self.payload, self.due_ms = b"xyz", due_ms


def test_what_an_earlier_life_had_no_time_to_tell_is_marked_as_that() -> None:
    told = Told()
    told.recorder.retold("stored", "shop", "queue:q", Queued(7, 9), 6_000, "", 0, "")
    told.recorder.retold("acked", "shop", "queue:q", Queued(7), 6_000, "g", 0, "")
    told.recorder.retold("died", "shop", "queue:q", Queued(8), 6_000, "g", 3, "nack")
    stored, acked, died = told.rows()
    assert (stored["came"], stored["at"], stored["due"], stored["bytes"]) == (
        4_000,
        6_000,
        9_000,
        3,
    )
    assert [row["reason"] for row in (stored, acked, died)] == ["recovered", "recovered", "nack"]
    assert [(row["group_name"], row["attempt"]) for row in (acked, died)] == [("g", None), ("g", 3)]


def tell_everything(recorder: CountingRecorder) -> None:
    """Call all that a recorder has, but what the test of a whole node shows."""
    recorder.session_opened("shop", "user:a", "s", "tcp")
    recorder.session_closed("shop", "user:a", "s", "tcp", 1000, 5)
    recorder.sent("shop", [message(1)], 1)
    recorder.published("shop", [message(1, to="topic:t")], 0)
    recorder.forwarded("shop", [message(1, to="topic:t")], "b", ["c"], promised=False)
    recorder.declined("shop", [message(1)], "unreachable")
    recorder.refused("shop", "overload")
    recorder.dropped("shop", "queue_moved", 3)
    recorder.handed("shop", "queue:q", 4, "user:a", 3, 5, 6, "b")
    recorder.stored("shop", "queue:q", [Queued(4)], 5, "b")
    recorder.died("shop", "queue:q", 4, "g", 3, "nack")
    recorder.cancelled("shop", "queue:q", 4)
    recorder.replayed("shop", "queue:q", 4)
    recorder.purged("shop", "queue:q", 4)
    recorder.purged("shop", "queue:q", None, 7)
    recorder.unwanted("shop", "queue:q", "g", 4)
    recorder.recovered("shop", "queue:q", 3)
    for kind in ("stored", "acked", "died", "cancelled", "replayed", "purged"):
        recorder.retold(kind, "shop", "queue:q", Queued(7), 6, "g", 1, "")
    recorder.asked("shop", "1", "user:a", "service:s", "s", 1, 5)
    recorder.answered("shop", "1", 5)
    recorder.user_came("shop", "user:a")
    recorder.user_gone("shop", "user:a")
    recorder.hooked("shop", "taken")
    recorder.link_up("b")
    recorder.link_down("b", "silence")
    recorder.link_beat("b", -5, 90)


@pytest.mark.parametrize("came_from", ["", "b"])
def test_a_copy_is_told_wherever_it_came_from(came_from: str) -> None:
    told = Told()
    told.recorder.copied("app", message(10**18, to="room:1"), came_from)
    (row,) = told.rows()
    assert (row["kind"], row["message"], row.get("came_from", "")) == ("copied", 10**18, came_from)


def test_every_event_has_columns_of_its_kind_only() -> None:
    told = Told()
    tell_everything(told.recorder)
    rows = told.rows()
    assert len(rows) == 31
    for row in rows:
        said = {name for name, value in row.items() if value is not None}
        assert said - ALWAYS <= set(KINDS[row["kind"]].columns), row


def test_it_counts_what_the_other_counts() -> None:
    told, counting = Told(), CountingRecorder()
    tell_everything(told.recorder)
    tell_everything(counting)
    for name in ("opened", "closed", "refusals", "drops", "users", "hooks"):
        assert getattr(told.recorder, name) == getattr(counting, name), name
    assert told.recorder.messages == counting.messages
    assert told.recorder.deliveries == counting.deliveries


def test_a_chunk_is_read_as_it_was_written() -> None:
    told = Told()
    told.recorder.link_up("b")
    assert [row["peer"] for row in told.rows()] == ["b"]
    assert list(rows_of(decode_chunks(b"\x91\x95\x01\xa1a\x02\x03\x90")[0])) == []
