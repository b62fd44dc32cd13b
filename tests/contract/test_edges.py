"""What holds on every edge alike."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from chappe.hub.options import HubOptions
from chappe.wire.ops import (
    Hello,
    Join,
    Leave,
    Members,
    Ping,
    Pong,
    Presence,
    Reply,
    Subscribe,
    Unsubscribe,
)
from tests.contract.peers import EDGES, meeting, publish, send, value_of
from tests.loop import on_loop
from tests.node.running import running

# A request over HTTP is answered whatever it is; the others tell an op with an id from one without.
STREAMED = tuple(edge for edge in EDGES if edge != "poll")
OPTIONS = HubOptions(heartbeat_s=30.0)

every_edge = pytest.mark.parametrize("edge", EDGES)


@every_edge
@on_loop
async def test_hello_opens_a_session(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path, hub=OPTIONS) as node, meeting(node) as here:
        peer = await here.connect(edge)
        reply = await peer.hello("user:alice")
        assert (reply.ok, reply.heartbeat_s) == (True, 30.0)
        session = node.hub.sessions[reply.session or ""]
        assert session.address == "user:alice"
        assert session.edge == edge.split("-", maxsplit=1)[0]


@every_edge
@on_loop
async def test_a_hello_that_names_nobody_is_refused(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        peer = await here.connect(edge)
        reply = await peer.hello("nobody")
        assert (reply.ok, reply.error) == (False, "protocol")
        assert "as" in (reply.reason or "")


@every_edge
@on_loop
async def test_what_is_sent_is_answered_ok_and_arrives(tmp_path: Path, edge: str) -> None:  # H5
    async with running(tmp_path) as node, meeting(node) as here:
        alice, bob = await here.join(edge, "alice"), await here.join(edge, "bob")
        reply = await alice.ask(send("user:bob", {"n": [1, "é", None]}))
        assert reply.ok
        delivery = await bob.receive()
        assert value_of(delivery) == {"n": [1, "é", None]}
        assert str(delivery.message) == str(reply.message)
        assert (delivery.from_, delivery.to) == ("user:alice", "user:bob")


@every_edge
@on_loop
async def test_nobody_there_is_unreachable(tmp_path: Path, edge: str) -> None:  # H5
    async with running(tmp_path) as node, meeting(node) as here:
        alice = await here.join(edge, "alice")
        reply = await alice.ask(send("user:nobody", 1))
        assert (reply.ok, reply.error) == (False, "unreachable")
        assert reply.reason


@every_edge
@on_loop
async def test_each_device_of_a_user_gets_it(tmp_path: Path, edge: str) -> None:  # H13
    async with running(tmp_path) as node, meeting(node) as here:
        sender = await here.join(edge, "sender")
        devices = [await here.join(other, "bob") for other in (edge, "tcp", "websocket-text")]
        assert (await sender.ask(send("user:bob", "to all"))).ok
        for device in devices:
            assert await device.values(1) == ["to all"]
        await here.leave(devices.pop())
        assert (await sender.ask(send("user:bob", "to the rest"))).ok
        for device in devices:
            assert await device.values(1) == ["to the rest"]


@every_edge
@on_loop
async def test_presence_follows_who_comes_and_goes(tmp_path: Path, edge: str) -> None:  # H8
    async with running(tmp_path) as node, meeting(node) as here:
        alice = await here.join(edge, "alice")
        asked = Presence(to="user:bob")
        assert (await alice.ask(asked)).online is False
        bob = await here.join(edge, "bob")
        assert (await alice.ask(asked)).online is True
        await here.leave(bob)

        async def gone() -> bool:
            return (await alice.ask(asked)).online is False

        await here.until(gone)


@every_edge
@on_loop
async def test_a_topic_carries_from_subscribe_to_unsubscribe(
    tmp_path: Path, edge: str
) -> None:  # H16
    async with running(tmp_path) as node, meeting(node) as here:
        alice, bob = await here.join(edge, "alice"), await here.join(edge, "bob")
        reply = await alice.ask(publish("topic:news", "nobody hears"))
        assert (reply.ok, reply.nodes) == (True, 0)
        assert (await bob.ask(Subscribe(to="topic:news"))).ok
        assert len(node.hub.apps["default"].topics) == 1
        reply = await alice.ask(publish("topic:news", "heard"))
        assert (reply.ok, reply.nodes) == (True, 1)
        delivery = await bob.receive()
        assert (value_of(delivery), delivery.to) == ("heard", "topic:news")
        assert (await bob.ask(Unsubscribe(to="topic:news"))).ok
        assert len(node.hub.apps["default"].topics) == 0
        assert (await alice.ask(publish("topic:news", "after"))).nodes == 0
        # Nothing of it lies before what comes next.
        await alice.ask(send("user:bob", "next"))
        assert await bob.values(1) == ["next"]


@every_edge
@on_loop
async def test_a_room_carries_from_join_to_leave(tmp_path: Path, edge: str) -> None:  # R1
    async with running(tmp_path) as node, meeting(node) as here:
        alice, bob = await here.join(edge, "alice"), await here.join(edge, "bob")
        reply = await alice.ask(publish("room:7", "nobody hears"))
        assert reply.ok
        for peer in (alice, bob):
            assert (await peer.ask(Join(to="room:7"))).ok
        reply = await alice.ask(Members(to="room:7", n=5))
        assert (reply.n, sorted(reply.members or ())) == (2, ["user:alice", "user:bob"])
        reliable = publish("room:7", {"n": 1})
        reliable.reliable = True
        reply = await alice.ask(reliable)
        delivery = await bob.receive()
        assert value_of(delivery) == {"n": 1}
        assert str(delivery.message) == str(reply.message)
        assert (delivery.from_, delivery.to) == ("user:alice", "room:7")
        assert await alice.values(1) == [{"n": 1}]
        assert (await bob.ask(Leave(to="room:7"))).ok
        assert (await alice.ask(publish("room:7", b"\x00\xff"))).ok
        assert await alice.values(1) == [b"\x00\xff"]
        assert (await alice.ask(send("user:bob", "the next"))).ok
        assert await bob.values(1) == ["the next"]


@every_edge
@on_loop
async def test_a_topic_is_reclaimed_when_its_last_subscriber_goes(
    tmp_path: Path, edge: str
) -> None:  # H16
    async with running(tmp_path) as node, meeting(node) as here:
        bob = await here.join(edge, "bob")
        await bob.ask(Subscribe(to="topic:news"))
        watch = await here.join("tcp", "watch")
        await here.leave(bob)

        async def reclaimed() -> bool:
            return (await watch.ask(Presence(to="topic:news"))).online is False

        await here.until(reclaimed)
        assert len(node.hub.apps["default"].topics) == 0


@every_edge
@on_loop
async def test_one_message_to_a_list_reaches_each_once(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        alice = await here.join(edge, "alice")
        others = [await here.join(edge, name) for name in ("bob", "carol")]
        reply = await alice.ask(send(["user:bob", "user:carol", "user:bob"], "once"))
        assert (reply.ok, reply.verdicts) == (True, {"user:bob": "ok", "user:carol": "ok"})
        await alice.ask(send(["user:bob", "user:carol"], "next"))
        for other in others:
            assert await other.values(2) == ["once", "next"]


@every_edge
@on_loop
async def test_one_senders_messages_arrive_in_their_order(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        alice, bob = await here.join(edge, "alice"), await here.join(edge, "bob")
        await bob.ask(Subscribe(to="topic:t"))
        count = 60 if edge == "poll" else 600
        for n in range(count):
            await alice.say(publish("topic:t", n) if n % 3 else send("user:bob", n))
        assert await bob.values(count) == list(range(count))


@every_edge
@on_loop
async def test_any_payload_crosses_to_every_other_edge(tmp_path: Path, edge: str) -> None:
    payloads: list[Any] = [
        b"",
        bytes(range(256)) * 20,
        b"\x00\xff\xfe",
        'é \u2028 \U0001f5fc \\ " \n',
        {"nested": [{"deep": [1, 2.5, -3e10, True, None]}], "": ""},
        "repeated " * 500,
        None,
        0,
    ]
    async with running(tmp_path) as node, meeting(node) as here:
        sender = await here.join(edge, "sender")
        receivers = {to: await here.join(to, to) for to in EDGES}
        for receiver in receivers.values():
            await receiver.ask(Subscribe(to="topic:t"))
        for data in payloads:
            assert (await sender.ask(send([f"user:{to}" for to in EDGES], data))).ok
            assert (await sender.ask(publish("topic:t", data))).ok
        for to, receiver in receivers.items():
            got = await receiver.values(2 * len(payloads))
            assert got == [data for data in payloads for _ in range(2)], to
            assert [type(data) for data in got[::2]] == [type(data) for data in payloads]


@pytest.mark.parametrize("edge", STREAMED)
@on_loop
async def test_an_op_without_an_id_gets_no_reply(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        alice = await here.join(edge, "alice")
        for op in (
            send("user:nobody", 1),
            publish("topic:t", 1),
            Subscribe(to="topic:t"),
            Unsubscribe(to="topic:t"),
            Presence(to="user:alice"),
            Join(to="room:1"),
            Hello(as_="user:alice"),
        ):
            await alice.say(op)
        await alice.say(Ping(id=5))
        # The first thing to be heard is the answer to the last: what came before got none.
        pong = await alice.hear()
        assert isinstance(pong, Pong)
        assert pong.id == 5
        assert node.recorder.refusals == {"unreachable": 1, "protocol": 1}


@every_edge
@on_loop
async def test_what_is_wrong_is_answered_and_the_session_goes_on(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        alice = await here.join(edge, "alice")
        for op in (
            send("nonsense", 1),
            send("user:a\x07b", 1),
            send("user:" + "x" * 10_000, 1),
            publish("user:alice", 1),
            Subscribe(to="topic:*"),
            Join(to="topic:t"),
            Members(to="room:1", n=-1),
        ):
            reply = await alice.ask(op)
            assert (reply.ok, reply.error) == (False, "protocol")
            assert reply.reason
        assert (await alice.ask(Presence(to="user:alice"))).online is True


@pytest.mark.parametrize("edge", STREAMED)
@on_loop
async def test_before_hello_and_with_a_second_one_ops_answer_protocol(
    tmp_path: Path, edge: str
) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        peer = await here.connect(edge)
        reply = await peer.ask(send("user:a", 1))
        assert (reply.ok, reply.error) == (False, "protocol")
        assert (await peer.hello("user:a")).ok
        assert (await peer.hello("user:b")).error == "protocol"


@every_edge
@on_loop
async def test_who_is_silent_for_three_beats_is_offline(tmp_path: Path, edge: str) -> None:  # H4
    quick = HubOptions(heartbeat_s=0.1, poll_lease_s=0.3)
    async with running(tmp_path, hub=quick) as node, meeting(node) as here:
        silent = await here.join(edge, "silent")
        silent.fall_silent()
        watch = await here.join("tcp", "watch")

        async def offline() -> bool:
            # Asking is the watcher's own beat.
            return (await watch.ask(Presence(to="user:silent"))).online is False

        await here.until(offline)
        assert (await watch.ask(Presence(to="user:watch"))).online is True
        assert node.recorder.closed == {4005: 1}


@every_edge
@on_loop
async def test_any_op_counts_as_a_beat(tmp_path: Path, edge: str) -> None:  # H4
    quick = HubOptions(heartbeat_s=0.2, poll_lease_s=0.6)
    async with running(tmp_path, hub=quick) as node, meeting(node) as here:
        lively = await here.join(edge, "lively")
        lively.fall_silent()
        for _ in range(18):
            await lively.say(publish("topic:t", 1))
            await asyncio.sleep(0.05)
        assert "user:lively" in node.hub.apps["default"].endpoints
        assert not node.recorder.closed


@every_edge
@on_loop
async def test_a_stream_of_events_hears_what_any_edge_says(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        alice = await here.join(edge, "alice")
        http = httpx.AsyncClient(base_url=node.addresses()["http"], trust_env=False)
        query = {"as": "user:ear", "subscribe": "topic:t"}
        async with http, http.stream("GET", "/v1/events", params=query) as stream:
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith("retry")  # subscribed
            assert (await alice.ask(send("user:ear", "direct"))).ok
            assert (await alice.ask(publish("topic:t", b"\x00\xff"))).nodes == 1
            assert (await alice.ask(Presence(to="user:ear"))).online is True
            events = []
            async for line in lines:
                if line.startswith("data: "):
                    events.append(httpx.Response(200, text=line[6:]).json())
                if len(events) == 2:
                    break
        assert [(event["op"], event["from"], event["to"]) for event in events] == [
            ("message", "user:alice", "user:ear"),
            ("message", "user:alice", "topic:t"),
        ]
        assert (events[0]["data"], events[1]["data64"]) == ("direct", "AP8=")


@every_edge
@on_loop
async def test_two_apps_never_meet(tmp_path: Path, edge: str) -> None:
    async with running(tmp_path) as node, meeting(node) as here:
        red, blue = [await here.join(edge, "same", app=app) for app in ("red", "blue")]
        other = await here.join(edge, "other", app="blue")
        for peer in (red, blue):
            await peer.ask(Subscribe(to="topic:t"))
        reply: Reply = await red.ask(Presence(to="user:other"))
        assert reply.online is False
        assert (await red.ask(send("user:other", "astray"))).error == "unreachable"
        await red.ask(publish("topic:t", "red"))
        await other.ask(publish("topic:t", "blue"))
        assert await red.values(1) == ["red"]
        assert await blue.values(1) == ["blue"]
