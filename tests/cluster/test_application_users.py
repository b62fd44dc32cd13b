"""Users and avatars across nodes: sender, home and receiver each on another one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chappe.errors import BadRequest, Forbidden, Overload, RequestError, Unreachable
from chappe.hub.options import HubOptions
from chappe.wire.limits import Limits
from chappe.wire.ops import Hello
from chappe.wire.packed import encode_op, frame
from tests.cluster.town import data, quiet, receive, town, until
from tests.loop import on_loop


@on_loop
async def test_any_user_reaches_any_other_and_nothing_tells_where_it_is(tmp_path: Path):  # H2, H13
    async with town(tmp_path) as place:
        edges = ("websocket", "tcp", "websocket")
        users = [await place.client(at, f"u{at}", edge=edge) for at, edge in enumerate(edges)]
        await place.settle()
        for sender in users:
            for receiver in users:
                id_ = await sender.send(receiver.address, {"n": [1, "é"]})
                message = await receive(receiver)
                assert (str(message.id), message.sender, message.to, message.data) == (
                    id_,
                    sender.address,
                    receiver.address,
                    {"n": [1, "é"]},
                )
        await users[0].send("user:u1", b"\x00\xff")
        assert await data(users[1]) == [b"\x00\xff"]
        await quiet(*users)


@on_loop
async def test_messages_to_one_receiver_keep_their_order_across_nodes(tmp_path: Path):
    async with town(tmp_path) as place:
        sender, receiver = await place.client(0, "a"), await place.client(1, "b")
        await place.settle()
        for n in range(300):
            sender.post("user:b", n)
        await sender.send("user:b", 300)
        assert await data(receiver, 301) == list(range(301))


@on_loop
async def test_each_device_of_a_user_gets_a_message_once_wherever_it_is(tmp_path: Path):  # H10, H13
    async with town(tmp_path) as place:
        devices = [await place.client(at, "bob") for at in (0, 1, 1, 2)]
        senders = [await place.client(at, f"s{at}") for at in range(3)]
        await place.settle()
        for sender in senders:
            await sender.send("user:bob", sender.address)
            await sender.send(["user:bob", "user:bob"], "list")
            sender.post("user:bob", "post")
            for device in devices:
                assert await data(device, 3) == [sender.address, "list", "post"]
        await quiet(*devices)
        # One device goes, and a message still reaches the others.
        await devices[0].close()
        await place.settle()
        await senders[0].send("user:bob", 1)
        for device in devices[1:]:
            assert await data(device) == [1]


@on_loop
async def test_a_list_has_a_verdict_for_each_wherever_they_are(tmp_path: Path):  # H5
    async with town(tmp_path) as place:
        users = [await place.client(at, f"u{at}") for at in range(3)]
        await place.settle()
        with pytest.raises(Unreachable) as refused:
            await users[0].send(["user:u0", "user:u1", "user:nobody", "user:u2", "topic:t"], 1)
        assert refused.value.verdicts == {
            "user:u0": "ok",
            "user:u1": "ok",
            "user:nobody": "unreachable",
            "user:u2": "ok",
            "topic:t": "protocol",
        }
        for user in users:
            assert await data(user) == [1]
        await users[1].send(["user:u2", "user:u0"], 2)
        assert await data(users[0]) == await data(users[2]) == [2]


@on_loop
async def test_avatars_are_reduced_to_users_before_delivery(tmp_path: Path):  # H14
    async with town(tmp_path) as place:
        manager, bob, sender = [
            await place.client(at, name) for at, name in enumerate(("manager", "bob", "sender"))
        ]
        phone = await place.client(2, "bob")
        for name in ("avatar:x", "avatar:y"):
            await manager.add_avatar(name, "user:bob")
        await place.settle()
        await sender.send("avatar:x", 1)
        message = await receive(bob)
        # Each sees only the avatar's address, and each device gets it.
        assert (message.to, message.sender, message.data) == ("avatar:x", "user:sender", 1)
        assert await data(phone) == [1]
        await sender.send(["avatar:y", "user:bob", "avatar:x", "user:manager"], 2)
        assert await data(bob) == await data(phone) == await data(manager) == [2]
        assert await sender.presence("avatar:x")
        assert not await sender.presence("avatar:nobody")
        await quiet(bob, phone, manager)
        await manager.remove_avatar("avatar:x")
        await place.settle()
        with pytest.raises(Unreachable):
            await sender.send("avatar:x", 3)
        assert not await sender.presence("avatar:x")


@on_loop
async def test_a_topic_reaches_a_user_and_its_avatars_once(tmp_path: Path):  # H14
    async with town(tmp_path) as place:
        manager, bob, sender = [
            await place.client(at, name) for at, name in enumerate(("manager", "bob", "sender"))
        ]
        phone = await place.client(0, "bob")
        for name in ("avatar:x", "avatar:y"):
            await manager.add_avatar(name, "user:bob")
        await place.settle()
        topic = place.placed("topic", 2)
        await bob.subscribe(topic, as_="avatar:x")
        await bob.subscribe(topic)
        await bob.subscribe(topic, as_="avatar:y")
        await phone.subscribe(topic, as_="avatar:y")
        await sender.publish(topic, 1)
        assert await data(bob) == await data(phone) == [1]
        await bob.unsubscribe(topic)
        await bob.unsubscribe(topic, as_="avatar:x")
        await sender.publish(topic, 2)
        assert await data(bob) == await data(phone) == [2]
        # The last name it was subscribed by goes, on another node: so does the subscription.
        await manager.remove_avatar("avatar:y")
        await place.settle()
        await until(lambda: topic not in place.app(1).topics)
        await sender.publish(topic, 3)
        await quiet(bob, phone)


@on_loop
async def test_who_may_make_avatars_stands_in_tokens_on_every_node(tmp_path: Path):  # H15
    async with town(tmp_path) as place:
        manager = await place.client(0, "manager", manage=["avatar:team.*"], send=["*"])
        user = await place.client(1, "bob", send=["*"])
        other = await place.client(2, "eve", send=["user:*"])
        await manager.add_avatar("avatar:team.1", "user:bob")
        await manager.add_avatar("avatar:team.2", "user:bob")
        await place.settle()
        for avatar, owner, who, error in (
            ("avatar:team.3", "user:eve", other, Forbidden),  # no manager
            ("avatar:else", "user:bob", manager, Forbidden),  # not of this one
            ("avatar:team.1", "user:eve", manager, Forbidden),  # somebody's already
            ("avatar:team.3", "avatar:team.1", manager, BadRequest),  # an avatar's
            ("avatar:team.3", "topic:t", manager, BadRequest),
        ):
            with pytest.raises(error):
                await who.add_avatar(avatar, owner)
        with pytest.raises(Forbidden):
            await other.remove_avatar("avatar:team.1")
        with pytest.raises(Forbidden):
            await other.send("avatar:team.1", 1)  # its token says users
        await user.remove_avatar("avatar:team.1")  # its own, made on another node
        await manager.remove_avatar("avatar:team.2")
        await place.settle()
        for avatar in ("avatar:team.1", "avatar:team.2"):
            with pytest.raises(Unreachable):
                await user.send(avatar, 1)


@on_loop
async def test_what_a_token_does_not_grant_is_forbidden_at_a_home_elsewhere(tmp_path: Path):  # H15
    async with town(tmp_path) as place:
        admin = await place.client(0, "admin", admin=["queue:*", "topic:*"])
        nobody = await place.client(1, "nobody", send=["user:*"])
        queue, service, topic = (place.placed(kind, 2) for kind in ("queue", "service", "topic"))
        await admin.create(queue, volatile=True)
        await admin.create(topic, anonymous=True)
        await place.settle()
        for refused in (
            nobody.create("queue:own", volatile=True),
            nobody.delete(queue),
            nobody.send(queue, 1),
            nobody.fetch(queue),
            nobody.provide(service, lambda asked: asked),
            nobody.request(service, 1),
            nobody.subscribe(topic),
            nobody.publish(topic, 1),
            admin.send(queue, 1),
        ):
            with pytest.raises(Forbidden):
                await refused


@on_loop
async def test_anybody_may_ask_who_is_online_anywhere(tmp_path: Path):  # H4, H8, H9
    async with town(tmp_path) as place:
        asking = [await place.client(at, f"asks{at}") for at in range(3)]
        bob = [await place.client(1, "bob"), await place.client(2, "bob")]
        topic, service, queue = (place.placed(kind, 0) for kind in ("topic", "service", "queue"))
        await bob[0].subscribe(topic)
        await bob[0].provide(service, lambda asked: asked)
        await asking[1].create(queue, volatile=True)
        await place.settle()

        async def told(address: str) -> list[bool]:
            return [await one.presence(address) for one in asking]

        for address in ("user:bob", topic, service, queue):
            assert await told(address) == [True] * 3, address
        for address in ("user:nobody", "topic:none", "service:none", "queue:none"):
            assert await told(address) == [False] * 3, address
        await bob[0].close()
        await place.settle()
        assert await told("user:bob") == [True] * 3  # the other device is still there
        await bob[1].close()
        await place.settle()
        for address in ("user:bob", topic, service):
            assert await told(address) == [False] * 3, address


@on_loop
async def test_a_route_that_got_lost_is_found_by_asking_everybody(tmp_path: Path):  # H12
    async with town(tmp_path) as place:
        sender, receiver = await place.client(0, "a"), await place.client(2, "b")
        await place.settle()
        app, forwarding = place.app(0), place.nodes[0].neighbourhood.cluster.forwarding
        for say in (sender.send, sender.send):
            del app.routes["user:b"]
            finds = forwarding.finds
            await say("user:b", finds)
            assert await data(receiver) == [finds]
            assert forwarding.finds == finds + 1
            # Whoever has it has announced it again: the next goes straight.
            assert "user:b" in app.routes
            await say("user:b", "again")
            assert await data(receiver) == ["again"]
            assert forwarding.finds == finds + 1
        del app.routes["user:b"]
        sender.post("user:b", "post")
        assert await data(receiver) == ["post"]
        del app.routes["user:b"]
        assert await sender.presence("user:b")
        # Many at once wait for one search.
        del app.routes["user:b"]
        finds = forwarding.finds
        for n in range(10):
            sender.post("user:b", n)
        assert await data(receiver, 10) == list(range(10))
        assert forwarding.finds == finds + 1


@on_loop
async def test_when_nobody_has_it_it_is_unreachable_and_nobody_is_asked_for_each_message(
    tmp_path: Path,
):  # H12
    async with town(tmp_path) as place:
        sender = await place.client(0, "a")
        forwarding = place.nodes[0].neighbourhood.cluster.forwarding
        finds = forwarding.finds
        for _ in range(5):
            with pytest.raises(Unreachable):
                await sender.send("user:nobody", 1)
        assert forwarding.finds == finds + 1
        # Whoever comes is known at once, whatever was remembered.
        nobody = await place.client(1, "nobody")
        await place.settle()
        await sender.send("user:nobody", 2)
        assert await data(nobody) == [2]


@on_loop
async def test_with_no_peer_the_answer_comes_at_once(tmp_path: Path):  # H12
    async with town(tmp_path, 1) as place:
        sender = await place.client(0, "a")
        with pytest.raises(Unreachable):
            await sender.send("user:nobody", 1)
        assert not await sender.presence("user:nobody")
        assert place.nodes[0].neighbourhood.cluster.forwarding.finds == 0


@on_loop
async def test_a_stale_route_is_deleted_and_the_user_looked_for_once_more(tmp_path: Path):  # H11
    async with town(tmp_path) as place:
        sender, receiver = await place.client(0, "a"), await place.client(1, "b")
        await place.settle()
        app, cluster = place.app(0), place.nodes[0].neighbourhood.cluster
        right, wrong = cluster.peer("n1"), cluster.peer("n2")
        assert right is not None
        assert wrong is not None
        for say in ("send", "post"):
            app.routes["user:b"] = wrong.alone
            if say == "send":
                await sender.send("user:b", say)
            else:
                sender.post("user:b", say)
            assert await data(receiver) == [say]
            assert app.routes["user:b"] == (right,)
        # Of two routes the wrong one goes, the message comes once.
        app.routes["user:b"] = (wrong, right)
        await sender.send("user:b", 2)
        assert await data(receiver) == [2]
        await place.settle()
        assert app.routes["user:b"] == (right,)
        await quiet(receiver)
        # Nobody has it: deleted, and told.
        app.routes["user:gone"] = wrong.alone
        with pytest.raises(Unreachable):
            await sender.send("user:gone", 1)
        assert "user:gone" not in app.routes


@on_loop
async def test_routes_tell_on_which_nodes_a_user_is_and_forget_who_left(tmp_path: Path):  # H9, H10
    async with town(tmp_path) as place:
        bob = [await place.client(at, "bob") for at in (1, 2)]
        await place.settle()

        def routes(at: int) -> set[str]:
            return {peer.name for peer in place.app(at).routes.get("user:bob", ())}

        assert [routes(at) for at in range(3)] == [{"n1", "n2"}, {"n2"}, {"n1"}]
        await bob[0].close()
        await place.settle()
        assert [routes(at) for at in range(3)] == [{"n2"}, {"n2"}, set()]
        # A node that comes later learns of everybody before it takes anybody in.
        await place.add()
        assert routes(3) == {"n2"}
        new = await place.client(3, "new")
        await new.send("user:bob", 1)
        assert await data(bob[1]) == [1]
        assert place.nodes[3].neighbourhood.cluster.forwarding.finds == 0


@asynccontextmanager
async def mute(url: str, address: str) -> AsyncIterator[None]:
    """Somebody who says hello, and then neither reads nor says anything."""
    parts = urlsplit(url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(sock, (parts.hostname, parts.port))
        await loop.sock_sendall(sock, frame(encode_op(Hello(id=1, as_=address))))
        yield
    finally:
        sock.close()


@on_loop
async def test_an_endpoint_that_stops_to_beat_is_offline_everywhere(tmp_path: Path):  # H4
    hub = HubOptions(heartbeat_s=0.2)
    async with town(tmp_path, hub=hub) as place:
        asking = [await place.client(at, f"asks{at}") for at in range(3)]

        async def online(wanted: bool) -> bool:
            return [await one.presence("user:mute") for one in asking] == [wanted] * 3

        async with mute(place.url(1, "tcp"), "user:mute"):
            await until(lambda: online(True), "a user that came is not known")
            await until(lambda: online(False), "a mute user stays online")
        assert [one.reconnects for one in asking] == [0] * 3


@on_loop
async def test_a_receiver_that_is_full_on_another_node_answers_overload(tmp_path: Path):  # H5
    hub = HubOptions(outbox_bytes_max=512 * 1024)
    async with town(tmp_path, hub=hub, limits=Limits(message_bytes_max=64 * 1024)) as place:
        sender, other = await place.client(0, "sender"), await place.client(1, "other")
        async with mute(place.url(1, "tcp"), "user:slow"):
            await until(lambda: sender.presence("user:slow"))
            refusal: RequestError | None = None
            while refusal is None:
                try:
                    await sender.send("user:slow", "x" * 60_000)
                except RequestError as error:
                    refusal = error
            # No more is promised than can be kept; and nobody else is disturbed.
            assert isinstance(refusal, Overload)
            assert not refusal.outcome_unknown
            await sender.send("user:other", 1)
            assert await data(other) == [1]
