"""Watching: topics whose homes move, once, twice, and back again (H16)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.cluster import watching as module
from chappe.message import Message
from chappe.wire.node import FromHome, Recovered, Unwatch, Watch
from chappe.wire.ops import Subscribe, Unsubscribe
from tests.cluster.hamlet import APP, Hamlet, home_among, moving
from tests.cluster.readers import keep_history, told, watchers
from tests.hub.rig import publish


def test_when_a_home_moves_to_a_new_node_nobody_acts_and_nothing_is_doubled() -> None:
    hamlet = Hamlet("a", "b")
    a, b, c = hamlet["a"], hamlet["b"], hamlet.add("c")
    topic = moving("topic", ("ab", "b"), ("abc", "c"), ("ac", "c"))
    readers = [node.user("r") for node in (a, b)]
    for reader in readers:
        hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.link("a", "c")
    hamlet.link("b", "c")
    # The new home's word is still to come: the old one is not left before it.
    hamlet.hold("c", "a")
    hamlet.settle()
    assert watchers(b, topic) == ["a"]
    hamlet.release("c", "a")
    hamlet.settle()
    assert watchers(c, topic) == ["a", "b"]
    assert watchers(b, topic) == watchers(a, topic) == []
    assert hamlet.ask(a.user("w"), publish(topic, 1, id=1)).nodes == 2
    assert [reader.got() for reader in readers] == [[1], [1]]


def test_two_quick_moves_of_a_home_leave_one_watch_at_the_last() -> None:
    hamlet = Hamlet(*"ab")
    a, b = hamlet["a"], hamlet["b"]
    hamlet.add("c")
    topic = moving("topic", ("ab", "b"), ("abc", "c"))
    reader = a.user("r")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    for way in ("ca", "ba"):
        hamlet.hold(*way)
    # There and back again before anybody's word arrives.
    hamlet.link("a", "c")
    hamlet.link("b", "c")
    hamlet.settle()
    hamlet.cut("a", "c")
    hamlet.cut("b", "c")
    hamlet.settle()
    for way in ("ca", "ba"):
        hamlet.release(*way)
    hamlet.settle()
    assert watchers(b, topic) == ["a"]
    hamlet.ask(b.user("w"), publish(topic, 1, id=1))
    assert reader.got() == [1]


def test_back_at_the_home_of_before_subscribers_are_told_what_they_may_have_missed() -> None:
    hamlet = Hamlet(*"ab")
    a, b = hamlet["a"], hamlet["b"]
    hamlet.add("c")
    topic = moving("topic", ("ab", "b"), ("abc", "c"))
    keep_history(hamlet, "ab", topic)
    reader, writer = a.user("r"), b.user("w")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    # For a while a takes another node for the home, of which b has not heard.
    hamlet.link("a", "c")
    hamlet.settle()
    assert watchers(b, topic) == []
    writer.say(publish(topic, "missed"))
    hamlet.settle()
    hamlet.cut("a", "c")
    hamlet.settle()
    history = b.application.topics.history(APP, topic)
    assert history is not None
    assert told(reader) == [("position", history.epoch, 1)]
    assert watchers(b, topic) == ["a"]


def test_who_leaves_while_homes_move_is_forgotten_by_the_old_one_too() -> None:
    hamlet = Hamlet(*"ab")
    a, b, c = hamlet["a"], hamlet["b"], hamlet.add("c")
    topic = moving("topic", ("ab", "b"), ("abc", "c"))
    reader = a.user("r")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.hold("c", "a")
    for one in "ab":
        hamlet.link(one, "c")
    hamlet.settle()
    assert watchers(b, topic) == watchers(c, topic) == ["a"]
    hamlet.ask(reader, Unsubscribe(id=2, to=topic))
    hamlet.release("c", "a")
    hamlet.settle()
    assert watchers(b, topic) == watchers(c, topic) == []


def test_a_home_that_moves_twice_before_its_word_is_left_by_all_it_was_asked_at() -> None:
    hamlet = Hamlet(*"ab")
    a, b, c, d = hamlet["a"], hamlet["b"], hamlet.add("c"), hamlet.add("d")
    topic = moving("topic", ("ab", "b"), ("abc", "c"), ("abcd", "d"), ("ad", "d"))
    reader = a.user("r")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.hold("c", "a")
    for one in "ab":
        hamlet.link(one, "c")
    hamlet.settle()
    for one in "abc":
        hamlet.link(one, "d")
    hamlet.settle()
    hamlet.release("c", "a")
    hamlet.settle()
    assert [watchers(node, topic) for node in (b, c, d)] == [[], [], ["a"]]
    hamlet.ask(c.user("w"), publish(topic, 1, id=1))
    assert reader.got() == [1]


def test_when_a_home_is_lost_here_who_waits_for_it_is_bound_and_answered() -> None:
    hamlet = Hamlet("a", "b")
    a = hamlet["a"]
    topic = hamlet.placed("topic", "b")
    bob, gone = a.user("bob"), a.user("gone")
    hamlet.hold("b", "a")
    bob.say(Subscribe(id=1, to=topic))
    gone.say(Subscribe(id=2, to=topic))
    hamlet.settle()
    a.leave(gone)
    hamlet.cut("a", "b")
    hamlet.settle()
    hamlet.ask(a.user("w"), publish(topic, 1, id=1))
    assert told(bob) == [("reply", 1, True), 1]
    assert gone.heard() == []


def test_when_a_home_moves_who_waits_for_it_asks_the_new_one() -> None:
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    topic = moving("topic", ("abc", "b"), ("ac", "c"))
    bob = a.user("bob")
    hamlet.hold("b", "a")
    bob.say(Subscribe(id=1, to=topic))
    hamlet.settle()
    hamlet.cut("a", "b")
    hamlet.cut("c", "b")
    hamlet.settle()
    hamlet.ask(c.user("w"), publish(topic, 1, id=1))
    assert told(bob) == [("reply", 1, True), 1]
    assert watchers(c, topic) == ["a"]
    assert b.cluster.peers == []


def test_a_history_that_begins_anew_with_its_home_is_told_to_subscribers() -> None:
    hamlet = Hamlet(*"abc")
    a, c = hamlet["a"], hamlet["c"]
    topic = moving("topic", ("abc", "b"), ("ac", "c"))
    keep_history(hamlet, "abc", topic)
    far, near = a.user("far"), c.user("near")
    for reader in (far, near):
        hamlet.ask(reader, Subscribe(id=1, to=topic))
    alice = a.user("alice")
    hamlet.ask(alice, publish(topic, 1, id=1))
    assert [told(reader) for reader in (far, near)] == [[1], [1]]
    hamlet.cut("a", "b")
    hamlet.cut("c", "b")
    hamlet.settle()
    history = c.application.topics.history(APP, topic)
    assert history is not None
    assert told(far) == told(near) == [("position", history.epoch, 0)]
    assert list(a.application.topics.histories()) == []


def test_numbers_of_a_home_that_is_one_no_more_are_not_told() -> None:
    hamlet = Hamlet(*"abc")
    topic = hamlet.placed("topic", "b")
    reader = hamlet["a"].user("r")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    messages = [Message(n, "user:x", topic, 1, b"1", offset=n) for n in (5, 6)]
    hamlet.forge("c", "a", FromHome(APP, messages))
    hamlet.forge("b", "a", FromHome(APP, messages))
    hamlet.settle()
    assert [op.offset for op in reader.heard()] == [0, 0, 5, 6]
    hamlet.forge("b", "a", FromHome("nowhere", messages), FromHome(APP, []))
    hamlet.settle()
    assert reader.heard() == []


def test_with_a_node_go_the_watches_it_had() -> None:
    hamlet = Hamlet(*"abc")
    b = hamlet["b"]
    topic = hamlet.placed("topic", "b")
    for name in "ac":
        hamlet.ask(hamlet[name].user("r"), Subscribe(id=1, to=topic))
    assert watchers(b, topic) == ["a", "c"]
    writer = b.user("w")
    hamlet.cut("a", "b")
    hamlet.settle()
    assert watchers(b, topic) == ["c"]
    assert hamlet.ask(writer, publish(topic, 1, id=1)).nodes == 1


def test_a_watch_said_twice_is_one_and_an_unwatch_of_nothing_is_none() -> None:
    hamlet = Hamlet("a", "b")
    b = hamlet["b"]
    reader = hamlet["a"].user("r")
    topic = hamlet.placed("topic", "b")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.forge("a", "b", Watch(APP, [topic]), Unwatch(APP, ["topic:x"]), Unwatch("no", ["t"]))
    assert watchers(b, topic) == ["a"]
    hamlet.ask(b.user("w"), publish(topic, 1, id=1))
    assert reader.got() == [1]
    hamlet.forge("b", "a", Recovered(999, "", 0, True, []))
    assert hamlet.end("a", "b").up


def test_many_topics_move_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOVE_TOPICS", 3)
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topics = [f"topic:t{n}" for n in range(20)]
    reader = a.user("r")
    for topic in topics:
        hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.cut("a", "b")
    assert a.cluster.watching.moving
    hamlet.settle()
    assert not a.cluster.watching.moving
    hamlet.link("a", "b")
    hamlet.settle()
    at_b = [topic for topic in topics if home_among("ab", topic) == "b"]
    assert [watchers(b, topic) for topic in at_b] == [["a"]] * len(at_b)
    for n, topic in enumerate(topics):
        hamlet.ask(b.user(f"w{n}"), publish(topic, n, id=1))
    assert reader.got() == list(range(20))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["on", "off"]), st.sampled_from("abc"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["cut", "join"]), st.sampled_from(["ab", "bc", "ac"])),
        st.tuples(st.sampled_from(["hold", "release"]), st.sampled_from(["ab", "ba", "bc", "ca"])),
        st.tuples(st.sampled_from(["settle", "tick"])),
    ),
    max_size=30,
)


class Crowd:
    """Three nodes with a reader each, and which topics they read."""

    def __init__(self) -> None:
        self.hamlet = Hamlet(*"abc")
        self.readers = {name: self.hamlet[name].user(f"r{name}") for name in "abc"}
        self.wanted: dict[str, set[str]] = {name: set() for name in "abc"}
        self.linked = {"ab", "bc", "ac"}

    def step(self, kind: str, *rest: Any) -> None:
        if kind in ("on", "off"):
            self._change(kind, rest[0], f"topic:t{rest[1]}")
        elif kind == "cut" and rest[0] in self.linked:
            self.linked.discard(rest[0])
            self.hamlet.cut(*rest[0])
        elif kind == "join" and rest[0] not in self.linked:
            self.linked.add(rest[0])
            self.hamlet.link(*rest[0])
        elif kind in ("hold", "release"):
            getattr(self.hamlet, kind)(*rest[0])
        elif kind in ("settle", "tick"):
            getattr(self.hamlet, kind)()

    def _change(self, kind: str, name: str, topic: str) -> None:
        if kind == "on":
            self.readers[name].say(Subscribe(to=topic))
            self.wanted[name].add(topic)
        else:
            self.readers[name].say(Unsubscribe(to=topic))
            self.wanted[name].discard(topic)

    def rest(self) -> None:
        """Let all links come up and all be said."""
        for way in ("ab", "ba", "bc", "ca"):
            self.hamlet.release(*way)
        for pair in ("ab", "bc", "ac"):
            self.step("join", pair)
        self.hamlet.settle()
        for reader in self.readers.values():
            reader.heard()


@given(STEPS)
def test_whatever_happened_in_the_end_each_subscriber_gets_each_message_once(
    steps: list[Any],
) -> None:
    crowd = Crowd()
    for step in steps:
        crowd.step(*step)
    crowd.rest()
    for n in range(3):
        topic = f"topic:t{n}"
        home = home_among("abc", topic)
        for name in "abc":
            others = sorted(o for o in "abc" if o != home and topic in crowd.wanted[o])
            assert watchers(crowd.hamlet[name], topic) == (others if name == home else [])
            crowd.readers[name].say(publish(topic, [n, name]))
            crowd.hamlet.settle()
    for name, reader in crowd.readers.items():
        expected = [[n, o] for n in range(3) for o in "abc" if f"topic:t{n}" in crowd.wanted[name]]
        assert reader.got() == expected


def test_a_history_that_another_home_went_on_with_meanwhile_begins_anew_and_says_so() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic = moving("topic", ("ab", "b"))
    keep_history(hamlet, "ab", topic)
    reader, writer = b.user("r"), a.user("w")
    before = hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.ask(writer, publish(topic, "before", id=1))
    reader.heard()
    # Nobody sees b any more; a goes on with its topics until b is back, as it was.
    hamlet.cut("a", "b")
    hamlet.settle()
    assert hamlet.ask(writer, publish(topic, "during", id=2)).ok
    hamlet.link("a", "b")
    hamlet.settle()
    (position,) = [word for word in told(reader) if word[0] == "position"]
    assert position[1] != before.epoch
    late = hamlet.ask(b.user("late"), Subscribe(id=1, to=topic, epoch=before.epoch, offset=0))
    assert late.recovered is False


def test_a_history_whose_home_nobody_stood_in_for_goes_on() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic = moving("topic", ("ab", "b"))
    keep_history(hamlet, "ab", topic)
    before = hamlet.ask(b.user("r"), Subscribe(id=1, to=topic))
    hamlet.ask(b.user("w"), publish(topic, "before", id=1))
    hamlet.cut("a", "b")
    hamlet.settle()
    hamlet.link("a", "b")
    hamlet.settle()
    late = hamlet.ask(a.user("late"), Subscribe(id=1, to=topic, epoch=before.epoch, offset=0))
    assert (late.recovered, late.epoch) == (True, before.epoch)
