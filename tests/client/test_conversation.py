"""The conversation without any link: what is said when, and what becomes of requests."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.client import form as forms
from chappe.client.conversation import Conversation
from chappe.client.event import Closing, Phase, Refused
from chappe.client.notice import Draining, Dropped, Unreadable, Unsubscribed
from chappe.client.options import ClientOptions
from chappe.client.subscription import Subscription
from chappe.errors import ConnectionClosed, Forbidden, Overload
from chappe.message import Message
from chappe.wire import ops, packed, text
from chappe.wire.ops import Hello, Ping, Pong, Reply, Send, Subscribe, Unsubscribe

TAKE = 1 << 20


class Side:
    """Both ends in one place: a conversation, and what a hub would read and say."""

    def __init__(self, name: str, **bounds: Any) -> None:
        self.form = {"packed": forms.PACKED, "text": forms.TEXT}[name]
        self.talk = Conversation(self.form, ClientOptions(**bounds))
        self.outcomes: dict[str, Any] = {}

    def said(self) -> list[Any]:
        """What the client says now, as the hub reads it."""
        heard: list[Any] = []
        for body in self.talk.take(TAKE):
            if self.form is forms.TEXT:
                heard.append(text.decode_client_op(body))
            else:
                heard += packed.read_client_ops(packed.check_version(body))
        return heard

    def hear(self, op: ops.Op) -> list[Any]:
        """What the hub says, as the client takes it."""
        return self.talk.receive(self.form.encode(op))

    def greet(self) -> None:
        self.talk.greet("user:a", None, None)
        (hello,) = self.said()
        self.hear(Reply(hello.id, True, session="s", heartbeat_s=2.5))

    def send(self, name: str, due: float = 10.0) -> Any:
        return self.talk.outgoing.ask_payload(
            Send, "user:b", b'"%b"' % name.encode(), False, due, self.settle(name)
        )

    def subscribe(self, topic: str, as_: str | None = None, recover: bool = True) -> None:
        wish = Subscription(self.talk.subscriptions, topic, as_, recover)
        op = Subscribe(to=topic, as_=as_)
        self.talk.outgoing.ask(op, 1.0, self.settle(topic), wish.begin)

    def unsubscribe(self, topic: str) -> None:
        remove = self.talk.subscriptions.remove
        self.talk.outgoing.ask(
            Unsubscribe(to=topic), 1.0, self.settle(topic), lambda reply: remove(topic, None)
        )

    def settle(self, name: str) -> Any:
        return lambda outcome: self.outcomes.__setitem__(name, outcome)


@pytest.fixture(params=["packed", "text"])
def side(request: pytest.FixtureRequest) -> Side:
    return Side(request.param)


def test_hello_comes_first_and_requests_wait_for_its_answer(side):
    side.send("early")
    assert side.said() == []
    side.talk.greet("user:a", "secret", "shop")
    (hello,) = side.said()
    assert isinstance(hello, Hello)
    assert (hello.as_, hello.token, hello.app, hello.v) == ("user:a", "secret", "shop", 1)
    assert side.talk.phase is Phase.GREETING
    assert side.hear(Reply(hello.id, True, session="s", heartbeat_s=2.5)) == []
    assert (side.talk.phase, side.talk.session, side.talk.heartbeat_s) == (Phase.READY, "s", 2.5)
    (send,) = side.said()
    assert isinstance(send, Send)
    side.hear(Reply(send.id, True, message="7"))
    assert str(side.outcomes["early"].message) == "7"
    assert not side.talk.awaiting


def test_a_refused_hello_is_told_with_its_error(side):
    side.talk.greet("user:a", None, None)
    (hello,) = side.said()
    (event,) = side.hear(Reply(hello.id, False, error="forbidden", reason="no"))
    assert isinstance(event, Refused)
    assert isinstance(event.error, Forbidden)


def test_topics_are_restored_before_anything_else_is_said(side):
    side.greet()
    for topic in ("topic:t", "topic:u"):
        side.subscribe(topic)
    for op in side.said():
        side.hear(Reply(op.id, True))
    side.talk.lose()
    side.send("later")
    side.greet()
    assert side.talk.phase is Phase.RESTORING
    first, second = side.said()
    assert (first.to, second.to) == ("topic:t", "topic:u")
    assert side.hear(Reply(first.id, True)) == []
    assert side.said() == []
    (event,) = side.hear(Reply(second.id, False, error="forbidden", reason="no"))
    assert isinstance(event, Unsubscribed)
    assert list(side.talk.subscriptions.wanted) == ["topic:t"]
    assert side.talk.phase is Phase.READY
    assert isinstance(side.said()[0], Send)


def test_subscriptions_follow_the_order_of_the_answers(side):
    side.greet()
    side.subscribe("topic:t")
    side.unsubscribe("topic:t")
    on, off = side.said()
    side.hear(Reply(on.id, True))
    assert list(side.talk.subscriptions.wanted) == ["topic:t"]
    side.hear(Reply(off.id, True))
    assert list(side.talk.subscriptions.wanted) == []


def test_a_lost_link_fails_what_was_written_and_keeps_what_was_not(side):
    side.greet()
    side.send("written")
    side.said()
    side.send("kept")
    side.talk.lose()
    assert side.outcomes["written"].outcome_unknown
    assert side.outcomes["written"].reason == "outcome unknown: the connection was lost"
    assert "kept" not in side.outcomes
    side.greet()
    (again,) = side.said()
    side.hear(Reply(again.id, True, message=1))
    assert side.outcomes["kept"].ok


def test_requests_expire_in_order_and_late_answers_are_nobodys(side):
    side.greet()
    side.send("first", due=1.0)
    side.send("second", due=2.0)
    first, _ = side.said()
    assert side.talk.outgoing.expire(1.5) == 2.0
    assert side.outcomes["first"].outcome_unknown
    assert side.hear(Reply(first.id, True, message=1)) == []
    assert side.talk.outgoing.expire(3.0) is None
    assert isinstance(side.outcomes["second"], Overload)
    assert side.talk.outgoing.in_flight == 0


def test_leaving_lets_answers_in_and_nothing_out(side):
    side.greet()
    side.send("asked")
    (op,) = side.said()
    side.talk.leave()
    side.send("held")
    assert side.said() == []
    side.hear(Reply(op.id, True, message=1))
    assert side.outcomes["asked"].ok
    assert side.talk.outgoing.in_flight == 0


def test_the_end_fails_all_and_refuses_more(side):
    side.greet()
    side.send("written")
    side.said()
    side.send("waiting")
    side.talk.end(ConnectionClosed(4003, "revoked"))
    assert side.outcomes["written"].outcome_unknown
    assert side.outcomes["waiting"].code == 4003
    with pytest.raises(ConnectionClosed):
        side.send("more")
    assert side.said() == []


def test_what_the_hub_says_by_itself_becomes_events(side):
    side.greet()
    assert side.hear(ops.Dropped(n=3)) == [Dropped(3)]
    assert side.hear(ops.Reconnect(reason="r", after_ms=1500)) == [Draining("r", 1.5)]
    assert side.hear(ops.Closed(code=1001, reason="r")) == [Closing(1001, "r")]
    assert side.hear(ops.Error(error="protocol", reason="r")) == [Unreadable("r")]
    assert side.hear(Pong()) == []
    assert side.hear(Ping()) == []
    (pong,) = side.said()
    assert isinstance(pong, Pong)


@pytest.mark.parametrize("body", [b"", b"{", b"\x01", b"\x01\x91\x7f", b'{"op":"?"}', b"\xff" * 9])
def test_garbage_becomes_a_notice(side, body):
    side.greet()
    (event,) = side.talk.receive(body)
    assert isinstance(event, Unreadable)
    assert side.talk.phase is Phase.READY


def test_many_ops_of_one_body_are_all_taken():
    side = Side("packed")
    side.greet()
    messages = [Message(n, "user:b", "user:a", 1, b"1") for n in range(100)]
    (body,) = packed.encode_messages(messages)
    assert side.talk.receive(body) == messages


def test_packed_requests_are_joined_within_the_bounds_of_a_frame():
    side = Side("packed")
    side.greet()
    for _ in range(10_000):
        side.talk.outgoing.say_payload(Send, "user:b", b"1", False)
    bodies = side.talk.take(TAKE)
    counts = [len(packed.read_client_ops(packed.check_version(body))) for body in bodies]
    assert sum(counts) == 10_000
    assert max(counts) <= packed.OPS_MAX
    assert max(len(body) for body in bodies) <= packed.MANY_BYTES_MAX + 16
