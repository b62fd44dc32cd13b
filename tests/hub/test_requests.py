"""Each op, each answer, each error."""

from __future__ import annotations

import msgspec
import pytest

from chappe.errors import CloseCode, ErrorCode, Forbidden
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions
from chappe.wire.encoding import JSON_ITEMS, STREAM
from chappe.wire.limits import Limits
from chappe.wire.ops import (
    CLIENT_OPS,
    PACKED,
    VERSION,
    Delivery,
    Error,
    Hello,
    Malformed,
    Ping,
    Pong,
    Presence,
    Promote,
    Publish,
    Reply,
    Send,
    Subscribe,
    Unsubscribe,
)
from tests.hub.rig import Rig, publish, send
from tests.loop import on_loop
from tests.parameters import named

# Journals and their masters are a node's affair, not a hub's.
NOT_SERVED = (Promote,)


class Narrow:
    """Grants a few addresses only."""

    def authenticate(self, hello: Hello) -> Grant:
        if hello.token == "no":
            raise Forbidden("token: no")
        return Grant(
            app="default",
            address=hello.as_,
            send=scope_of(["user:bob", "topic:news", "topic:open.*"]),
            publish=scope_of(["topic:open.*", "user:bob"]),
            subscribe=scope_of(["topic:*"]),
        )


@on_loop
async def test_hello_is_answered_with_session_heartbeat_and_version() -> None:
    rig = Rig(options=HubOptions(heartbeat_s=7.0))
    alice = rig.stranger()
    alice.say(Hello(id=1, as_="user:alice"))
    await rig.tick()
    assert alice.reply() == PACKED[Reply](
        id=1,
        ok=True,
        session=alice.session.id,
        heartbeat_s=7.0,
        v=VERSION,
        as_="user:alice",
    )


@on_loop
async def test_a_second_hello_is_refused_and_changes_nothing() -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    alice.say(Hello(id=1, as_="user:mallory"))
    await rig.tick()
    reply = alice.reply()
    assert (reply.ok, reply.error) == (False, "protocol")
    assert alice.session.address == "user:alice"
    assert "user:mallory" not in rig.hub.apps["default"].endpoints


@pytest.mark.parametrize("op", sorted(set(CLIENT_OPS) - {Hello, Ping, Pong}, key=str))
@on_loop
async def test_an_op_before_hello_is_refused_and_the_third_closes(op: type) -> None:
    rig = Rig()
    stranger = rig.stranger()
    for number in (1, 2):
        stranger.say(op(id=number))
        await rig.tick()
        reply = stranger.reply()
        assert (reply.id, reply.error) == (number, "protocol")
        assert "hello first" in (reply.reason or "")
        assert stranger.sink.closed is None
    stranger.say(op(id=3))
    await rig.tick()
    assert stranger.sink.closed is not None
    assert stranger.sink.closed[0] == CloseCode.MALFORMED
    assert not rig.hub.sessions


@on_loop
async def test_a_stranger_may_ping() -> None:
    rig = Rig()
    stranger = rig.stranger()
    stranger.say(Ping(id=4), Ping())
    await rig.tick()
    assert stranger.heard() == [PACKED[Pong](id=4), PACKED[Pong]()]


@pytest.mark.parametrize("op", NOT_SERVED)
@pytest.mark.parametrize("form", ["text", "packed"])
@on_loop
async def test_an_op_that_is_not_served_is_answered_protocol(op: type, form: str) -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    alice.say((op if form == "text" else PACKED[op])(id=9))
    await rig.tick()
    reply = alice.reply()
    assert (reply.id, reply.ok, reply.error) == (9, False, "protocol")
    assert op.__name__.lower() in (reply.reason or "")
    assert not alice.session.closed


@on_loop
async def test_hello_of_a_version_not_spoken_is_refused() -> None:
    rig = Rig()
    stranger = rig.stranger()
    stranger.say(Hello(id=1, as_="user:alice", v=2))
    await rig.tick()
    assert stranger.reply().error == "protocol"
    assert not stranger.session.address


@on_loop
async def test_a_hello_that_is_forbidden_is_answered_and_closed() -> None:
    rig = Rig(authenticator=Narrow())
    stranger = rig.stranger()
    stranger.say(Hello(id=1, as_="user:alice", token="no"))
    await rig.tick()
    assert stranger.reply().error == "forbidden"
    assert stranger.sink.closed == (CloseCode.UNAUTHORIZED, "token: no")


@on_loop
async def test_send_is_answered_ok_with_the_id_of_what_arrives() -> None:  # H5
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(send("user:bob", {"n": 1}, id=7))
    await rig.tick()
    reply = alice.reply()
    assert reply.ok
    (delivery,) = bob.heard()
    assert isinstance(delivery, Delivery)
    assert delivery.message == reply.message
    assert (delivery.from_, delivery.to) == ("user:alice", "user:bob")
    assert delivery.ts == rig.clock.wall_ms()
    assert msgspec.json.decode(delivery.data) == {"n": 1}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (send("user:nobody", 1), "unreachable"),
        (send("", 1), "protocol"),
        (send("nonsense", 1), "protocol"),
        (send("user:a*", 1), "protocol"),
        (send("user:" + "x" * 10_000, 1), "protocol"),
        (send("user:a\x00b", 1), "protocol"),
        (send("topic:news", 1), "protocol"),
        (send("queue:jobs", 1), "unreachable"),
        (send("room:1", 1), "protocol"),
        (send([], 1), "protocol"),
        (Send(to="user:bob"), "protocol"),
        (Send(to="user:bob", data64="***"), "protocol"),
        (PACKED[Send](to="user:bob", data=b"{not json"), "protocol"),
        (PACKED[Send](to="user:bob", data=b'"\xff"'), "protocol"),
        (PACKED[Send](to="user:bob"), "protocol"),
        (publish("user:bob", 1), "protocol"),
        (publish("room:1", 1), "unreachable"),
        (publish("", 1), "protocol"),
        (Publish(to="topic:news"), "protocol"),
        (Subscribe(to="user:bob"), "protocol"),
        (Subscribe(to="topic:*"), "protocol"),
        (Subscribe(to="key:*"), "protocol"),
        (Unsubscribe(to="user:bob"), "protocol"),
        (Presence(to="room:1"), "unreachable"),
        (Presence(to=""), "protocol"),
    ],
    ids=named,
)
@on_loop
async def test_an_error_is_answered_with_an_id_and_counted_without(op: Send, error: str) -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(Subscribe(to="topic:news"))
    op.id = None
    alice.say(op)
    await rig.tick()
    assert alice.heard() == []
    assert rig.recorder.refusals == {error: 1}
    op.id = 3
    alice.say(op)
    await rig.tick()
    reply = alice.reply()
    assert (reply.id, reply.ok, reply.error) == (3, False, error)
    assert reply.reason
    assert len(reply.reason) < 200
    assert rig.recorder.refusals == {error: 2}
    # Nobody is disturbed, nothing came.
    assert bob.heard() == []
    assert not alice.session.closed


@on_loop
async def test_what_may_be_sent_may_not_be_published_nor_the_other_way() -> None:
    rig = Rig(authenticator=Narrow())
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(Subscribe(to="topic:news"), Subscribe(to="topic:open.a"))
    await rig.tick()
    for op, error in (
        (send("user:carol", 1), "forbidden"),
        (publish("topic:news", 1), "forbidden"),
        (send("topic:open.a", 1), "protocol"),
        (send("topic:news", 1), "protocol"),
        (publish("user:bob", 1), "protocol"),
    ):
        op.id = 1
        alice.say(op)
        await rig.tick()
        assert alice.reply().error == error
    alice.say(send("user:bob", "sent"), publish("topic:open.a", "published"))
    await rig.tick()
    assert bob.got() == ["sent", "published"]


@pytest.mark.parametrize("apart", [True, False])
@on_loop
async def test_a_run_under_way_opens_no_way_around_a_permission(apart: bool) -> None:
    """While somebody else's messages to an address are gathered, yours are checked all the same."""
    rig = Rig(authenticator=Narrow())
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(Subscribe(to="topic:open.a"))
    await rig.tick()
    ops = [
        [publish("topic:open.a", 1), send("user:nobody", 0), send("topic:open.a", "stray")],
        [send("user:bob", 2), publish("topic:open.none", 0), publish("user:bob", "stray")],
        [send("user:bob", 3), publish("user:bob", "stray")],
        [publish("topic:open.a", 4), send("topic:open.a", "stray")],
    ]
    for batch in ops:
        for part in [[op] for op in batch] if apart else [batch]:
            alice.say(*part)
    await rig.tick()
    assert bob.got() == [1, 2, 3, 4]


@on_loop
async def test_an_address_left_out_behind_a_slow_receiver_is_refused() -> None:
    rig = Rig()
    alice, slow = rig.endpoint("alice"), rig.endpoint("slow")
    rig.hub.pause(slow.session)
    alice.say(send("user:slow", 1), send("", 2), send("", 3, id=1))
    await rig.tick()
    assert alice.reply().error == "protocol"
    rig.hub.resume(slow.session)
    assert slow.got() == [1]


@on_loop
async def test_one_message_to_a_list_reaches_each_once() -> None:
    rig = Rig()
    alice, bob, carol = (rig.endpoint(name) for name in ("alice", "bob", "carol"))
    alice.say(send(["user:bob", "user:carol", "user:bob"], "x", id=1))
    await rig.tick()
    reply = alice.reply()
    assert (reply.ok, reply.verdicts) == (True, {"user:bob": "ok", "user:carol": "ok"})
    for receiver, name in ((bob, "bob"), (carol, "carol")):
        (delivery,) = receiver.heard()
        assert delivery.to == f"user:{name}"
        assert delivery.message == reply.message


@on_loop
async def test_a_list_is_answered_with_each_ones_verdict() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(send(["user:bob", "user:nobody", "topic:t"], "x", id=1))
    await rig.tick()
    reply = alice.reply()
    assert (reply.ok, reply.error) == (False, "unreachable")
    assert reply.verdicts == {"user:bob": "ok", "user:nobody": "unreachable", "topic:t": "protocol"}
    assert bob.got() == ["x"]
    assert rig.recorder.refusals == {"unreachable": 1, "protocol": 1}


@on_loop
async def test_a_list_with_one_forbidden_receiver_reaches_nobody() -> None:
    rig = Rig(authenticator=Narrow())
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(send(["user:bob", "user:carol"], "x", id=1))
    await rig.tick()
    assert alice.reply().error == "forbidden"
    assert bob.got() == []


@on_loop
async def test_a_list_has_a_bound() -> None:
    rig = Rig(limits=Limits(receivers_max=2))
    alice = rig.endpoint("alice")
    alice.say(send(["user:a", "user:b", "user:c"], "x", id=1))
    await rig.tick()
    assert "more than 2 receivers" in (alice.reply().reason or "")


@on_loop
async def test_publish_reaches_each_subscriber_and_says_how_many_nodes_took_it() -> None:  # H16
    rig = Rig()
    alice, bob, carol = (rig.endpoint(name) for name in ("alice", "bob", "carol"))
    alice.say(publish("topic:news", "nobody hears", id=1))
    await rig.tick()
    reply = alice.reply()
    assert (reply.ok, reply.nodes) == (True, 0)
    bob.say(Subscribe(id=1, to="topic:news"))
    carol.say(Subscribe(id=1, to="topic:news"))
    alice.say(publish("topic:news", "heard", id=2))
    await rig.tick()
    assert alice.reply().nodes == 1
    assert bob.got() == carol.got() == ["heard"]
    bob.say(Unsubscribe(id=2, to="topic:news"))
    alice.say(publish("topic:news", "after"))
    await rig.tick()
    assert (bob.got(), carol.got()) == ([], ["after"])


@on_loop
async def test_a_topic_lives_from_its_first_to_its_last_subscriber() -> None:  # H16
    rig = Rig()
    bob, carol = rig.endpoint("bob"), rig.endpoint("carol")
    topics = rig.hub.apps["default"].topics
    bob.say(Subscribe(to="topic:news"), Subscribe(to="topic:news"))
    carol.say(Subscribe(to="topic:news"))
    assert list(topics) == ["topic:news"]
    bob.say(Unsubscribe(to="topic:news"))
    assert "topic:news" in topics
    rig.hub.lost(carol.session)
    assert len(topics) == 0


@on_loop
async def test_subscribing_twice_delivers_once() -> None:
    rig = Rig()
    bob = rig.endpoint("bob")
    bob.say(Subscribe(id=1, to="topic:t"), Subscribe(id=2, to="topic:t"), publish("topic:t", 1))
    await rig.tick()
    replies = [op for op in bob.heard() if isinstance(op, Reply)]
    assert [reply.ok for reply in replies] == [True, True]
    bob.say(publish("topic:t", 2))
    await rig.tick()
    assert bob.got() == [2]


@on_loop
async def test_a_sessions_topics_are_bounded() -> None:
    rig = Rig(options=HubOptions(subscriptions_max=2))
    bob = rig.endpoint("bob")
    bob.say(*(Subscribe(id=n, to=f"topic:{n}") for n in range(3)), Subscribe(id=9, to="topic:0"))
    await rig.tick()
    assert [op.error for op in bob.heard()] == [None, None, "overload", None]


@on_loop
async def test_presence_tells_who_is_online() -> None:  # H8
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(Subscribe(to="topic:t"))
    asked = ("user:bob", "user:carol", "topic:t", "topic:u")
    alice.say(*(Presence(id=n, to=to) for n, to in enumerate(asked)))
    rig.hub.lost(bob.session)
    alice.say(Presence(id=4, to="user:bob"), Presence(id=5, to="topic:t"), Presence(to="user:bob"))
    await rig.tick()
    assert [op.online for op in alice.heard()] == [True, False, True, False, False, False]


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_malformed_frames_are_told_and_the_third_closes(encoding) -> None:
    rig = Rig()
    alice = rig.endpoint("alice", encoding)
    for n in (1, 2):
        alice.say(Malformed(f"bad {n}"))
        await rig.tick()
        (error,) = alice.heard()
        assert isinstance(error, Error)
        assert (error.error, error.reason) == (ErrorCode.PROTOCOL, f"bad {n}")
    alice.say(Malformed("bad 3"), send("user:alice", "not carried out"))
    await rig.tick()
    assert alice.sink.closed is not None
    assert alice.sink.closed[0] == CloseCode.MALFORMED
    assert not [op for op in alice.heard() if isinstance(op, Delivery)]


@on_loop
async def test_a_malformed_frame_that_loses_the_rest_closes_at_once() -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    alice.say(Malformed("too long", CloseCode.MESSAGE_TOO_BIG))
    await rig.tick()
    assert alice.sink.closed == (CloseCode.MESSAGE_TOO_BIG, "too long")


@on_loop
async def test_binary_and_json_payloads_cross_between_the_forms_unchanged() -> None:
    rig = Rig()
    text, packed = rig.endpoint("text", JSON_ITEMS), rig.endpoint("packed")
    blob = bytes(range(256))
    text.say(Send(to="user:packed", data64=msgspec.to_builtins(blob)), send("user:packed", "é"))
    packed.say(
        PACKED[Send](to="user:text", data=blob, data64=True),
        PACKED[Send](to="user:text", data='"é"'.encode()),
    )
    await rig.tick()
    binary, value = packed.heard()
    assert (binary.data, binary.data64) == (blob, True)
    assert (value.data, value.data64) == ('"é"'.encode(), False)
    binary, value = text.heard()
    assert binary.data64 == msgspec.to_builtins(blob)
    assert bytes(value.data) == '"é"'.encode()
