"""What a client asks for, through real sockets on every edge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.client import ClientOptions, Published, connect
from chappe.errors import BadRequest, ConnectionClosed, Forbidden, Overload, Unreachable
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions, Rate
from chappe.wire.ops import Hello

from .conftest import serving


class Narrow:
    """Admits everybody with few rights, if the token is right."""

    def authenticate(self, hello: Hello) -> Grant:
        if hello.token != "open sesame":
            raise Forbidden("token: wrong")
        return Grant(
            app=hello.app or "default",
            address=hello.as_ or "user:somebody",
            send=scope_of(["user:bob"]),
            publish=scope_of(["topic:open"]),
            subscribe=scope_of(["topic:open"]),
        )


def test_hello_opens_a_session_under_the_given_address(run, dial):
    async def test():
        async with serving() as service, dial(service, "alice") as alice:
            assert alice.connected
            assert alice.address == "user:alice"
            assert service.session(alice).address == "user:alice"
        assert not service.hub.sessions

    run(test())


def test_a_client_with_a_token_alone_learns_who_it_is(run, edge):  # H13
    async def test():
        async with serving(authenticator=Narrow()) as service:
            form = "text" if edge.endswith("text") else "packed"
            options = ClientOptions(form=form)
            async with connect(service.url(edge), token="open sesame", options=options) as client:
                assert client.address == "user:somebody"

    run(test())


def test_connect_can_be_awaited_instead_of_entered(run, dial):
    async def test():
        async with serving() as service:
            alice = await dial(service, "alice")
            assert await alice.presence("user:alice")
            await alice.close()
            assert not alice.connected

    run(test())


@pytest.mark.parametrize(
    "data",
    [
        {"a": [1, 2.5, None, True, "é\u2028"]},
        "text",
        None,
        0,
        [],
        b"",
        b"\x00\xff\x80 any byte",
        bytes(range(256)) * 300,
    ],
    ids=lambda value: repr(value)[:12],
)
def test_a_sent_value_arrives_as_it_was(run, dial, data):  # H5
    async def test():
        async with serving() as service, dial(service, "a") as alice, dial(service, "b") as bob:
            sent = await alice.send("user:b", data)
            message = await bob.receive()
            assert message.data == data
            assert type(message.data) is type(data)
            assert (message.id, message.sender, message.to) == (int(sent), "user:a", "user:b")
            assert message.ts_ms > 0

    run(test())


def test_forms_understand_each_other(run):
    async def test():
        async with serving() as service:
            packed = await connect(service.url("websocket"), as_="user:p")
            text = await connect(
                service.url("websocket"), as_="user:t", options=ClientOptions(form="text")
            )
            stream = await connect(service.url("tcp"), as_="user:s")
            clients = {"p": packed, "t": text, "s": stream}
            for sender in clients.values():
                for name, receiver in clients.items():
                    for data in (b"\xfe\xff", {"é": 1}):
                        await sender.send(f"user:{name}", data)
                        assert (await receiver.receive()).data == data
            for client in clients.values():
                await client.close()

    run(test())


def test_messages_of_one_sender_arrive_in_order(run, dial):
    async def test():
        async with serving() as service, dial(service, "a") as alice, dial(service, "b") as bob:
            ids = await asyncio.gather(*(alice.send("user:b", n) for n in range(500)))
            got = [await bob.receive() for _ in range(500)]
            assert [message.data for message in got] == list(range(500))
            assert [str(message.id) for message in got] == ids

    run(test())


def test_requests_of_one_turn_of_the_loop_go_out_in_one_write(run, dial):
    async def test():
        async with serving() as service, dial(service, "a") as alice, dial(service, "b"):
            link = alice._connection._attachment.link
            transport = link._transport
            writes = []

            class Counted:
                def __getattr__(self, name: str) -> Any:
                    return getattr(transport, name)

                def write(self, data: bytes) -> None:
                    writes.append(data)
                    transport.write(data)

            link._transport = Counted()
            for n in range(50):
                alice.post("user:b", n)
            assert not writes
            await alice.presence("user:b")
            assert len(writes) == 1
            await asyncio.gather(*(alice.send("user:b", n) for n in range(50)))
            assert len(writes) == 2

    run(test())


def test_a_list_gets_one_verdict_per_receiver(run, dial):
    async def test():
        async with serving() as service, dial(service, "a") as alice, dial(service, "b") as bob:
            assert await alice.send(["user:b", "user:a"], 1)
            assert (await bob.receive()).data == 1
            with pytest.raises(Unreachable) as caught:
                await alice.send(["user:b", "user:nobody", "queue:jobs"], 2)
            assert caught.value.verdicts == {
                "user:b": "ok",
                "user:nobody": "unreachable",
                "queue:jobs": "protocol",
            }
            assert (await bob.receive()).data == 2

    run(test())


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("user:nobody", Unreachable),
        ("user:", BadRequest),
        ("nobody", BadRequest),
        ("user:a\x00b", BadRequest),
        ("user:" + "x" * 10_000, BadRequest),
        ("user:\ud800", BadRequest),
        (7, BadRequest),
        ([], BadRequest),
    ],
)
def test_what_cannot_be_sent_raises_a_typed_error(run, dial, to, error):  # H5
    async def test():
        async with serving() as service, dial(service, "a") as alice:
            with pytest.raises(error):
                await alice.send(to, "x")
            # The session is none the worse for it.
            assert await alice.presence("user:a")
            assert alice.pending == 0

    run(test())


def test_data_that_cannot_travel_is_refused_before_it_is_sent(run, dial):
    async def test():
        async with serving() as service, dial(service, "a") as alice:
            for data in (object(), "\ud800", b"x" * 1_048_577):
                with pytest.raises(BadRequest, match="data"):
                    await alice.send("user:a", data)
                with pytest.raises(BadRequest, match="data"):
                    alice.post("user:a", data)
            assert await alice.presence("user:a")
            assert service.hub.recorder.refusals == {}

    run(test())


def test_rights_are_enforced_as_forbidden(run, dial):
    async def test():
        async with (
            serving(authenticator=Narrow()) as service,
            dial(service, "a", token="open sesame") as alice,
        ):
            for ask in (
                alice.send("user:carol", 1),
                alice.publish("topic:shut", 1),
                alice.subscribe("topic:shut"),
            ):
                with pytest.raises(Forbidden):
                    await ask
            await alice.subscribe("topic:open")
            assert alice.subscriptions == ("topic:open",)

    run(test())


def test_a_wrong_token_raises_forbidden_and_leaves_nothing(run, dial):
    async def test():
        async with serving(authenticator=Narrow()) as service:
            for token in ("wrong", None):
                with pytest.raises(Forbidden, match="token"):
                    await dial(service, "a", token=token)

    run(test())


def test_a_token_may_come_from_a_function_plain_or_async(run, dial):
    async def test():
        async def fetched() -> str:
            await asyncio.sleep(0)
            return "open sesame"

        async with serving(authenticator=Narrow()) as service:
            for token in (lambda: "open sesame", fetched):
                async with dial(service, "a", token=token, app="shop") as alice:
                    assert service.session(alice).app.name == "shop"

    run(test())


def test_nobody_listening_raises_connection_closed(run, dial):
    async def test():
        async with serving() as service:
            pass
        with pytest.raises(ConnectionClosed, match="cannot connect"):
            await dial(service, "a")

    run(test())


def test_publish_reaches_subscribers_until_they_unsubscribe(run, dial):  # H16
    async def test():
        async with serving() as service, dial(service, "a") as alice, dial(service, "b") as bob:
            published = await alice.publish("topic:news", "nobody hears")
            assert isinstance(published, Published)
            assert published.nodes == 0
            await bob.subscribe("topic:news")
            await alice.subscribe("topic:news")
            published = await alice.publish("topic:news", {"n": 1})
            assert published.nodes == 1
            for client in (alice, bob):
                message = await client.receive()
                assert (message.to, message.data) == ("topic:news", {"n": 1})
                assert str(message.id) == published.message
            await bob.unsubscribe("topic:news")
            assert bob.subscriptions == ()
            await alice.publish("topic:news", {"n": 2})
            await alice.send("user:b", "last")
            assert (await bob.receive()).data == "last"

    run(test())


def test_subscribing_to_what_is_no_topic_is_a_bad_request(run, dial):
    async def test():
        async with serving() as service, dial(service, "a") as alice:
            with pytest.raises(BadRequest):
                await alice.subscribe("user:b")
            assert alice.subscriptions == ()

    run(test())


def test_presence_tells_who_is_online(run, dial):  # H8
    async def test():
        async with serving() as service, dial(service, "a") as alice:
            assert not await alice.presence("user:b")
            async with dial(service, "b"):
                assert await alice.presence("user:b")
            assert not await alice.presence("user:b")

    run(test())


def test_posts_are_sent_and_published_without_an_answer(run, dial):
    async def test():
        async with serving() as service, dial(service, "a") as alice, dial(service, "b") as bob:
            await bob.subscribe("topic:t")
            alice.post("user:b", 1)
            alice.post("topic:t", b"\xff")
            alice.post(["user:b", "user:nobody"], 3)
            alice.post("user:nobody", 4)
            assert alice.pending == 0
            assert [(await bob.receive()).data for _ in range(3)] == [1, b"\xff", 3]
            assert await alice.presence("user:a")
            # Errors of posts are counted by the hub, not answered.
            assert service.hub.recorder.refusals["unreachable"] == 2

    run(test())


def test_what_was_posted_before_close_still_arrives(run, dial):
    async def test():
        async with serving() as service, dial(service, "b") as bob:
            async with dial(service, "a") as alice:
                for n in range(300):
                    alice.post("user:b", [n, "x" * 2000])
            assert [(await bob.receive()).data[0] for _ in range(300)] == list(range(300))

    run(test())


def test_the_hubs_overload_is_raised_and_is_temporary(run, dial):
    async def test():
        options = HubOptions(rate=Rate(messages_per_s=1))
        async with serving(options) as service, dial(service, "a") as alice:
            with pytest.raises(Overload) as caught:
                await asyncio.gather(*(alice.send("user:a", 1) for _ in range(100)))
            assert caught.value.temporary
            assert not caught.value.outcome_unknown

    run(test())


def test_iteration_ends_when_the_client_is_closed(run, dial):
    async def test():
        async with serving() as service:
            alice = await dial(service, "a")
            await alice.send("user:a", 1)
            got = []

            async def read() -> None:
                got.extend([message.data async for message in alice])

            reading = asyncio.create_task(read())
            assert await alice.send("user:a", 2)
            await alice.close()
            await alice.close()
            await reading
            assert got == [1, 2]
            with pytest.raises(ConnectionClosed):
                await alice.receive()
            with pytest.raises(ConnectionClosed):
                await alice.send("user:a", 3)
            with pytest.raises(ConnectionClosed):
                alice.post("user:a", 4)

    run(test())
