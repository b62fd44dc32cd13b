"""Connections that are lost, refused, drained and found again."""

from __future__ import annotations

import asyncio

import pytest

from chappe.client import (
    Disconnected,
    Draining,
    Reconnected,
    Unsubscribed,
)
from chappe.errors import BadRequest, CloseCode, ConnectionClosed, Forbidden, Overload
from chappe.hub.grant import EVERYTHING, NOTHING, Grant
from chappe.hub.options import HubOptions
from chappe.wire.ops import Hello

from .conftest import Notices, serving


def test_a_lost_connection_is_made_anew_and_topics_are_subscribed_again(run, dial):
    async def test():
        notices = Notices()
        async with serving() as service, dial(service, "a", on_notice=notices) as alice:
            await alice.subscribe("topic:t")
            await alice.subscribe("topic:u")
            await alice.unsubscribe("topic:u")
            first = alice.session
            service.session(alice).sink.abort()
            assert (await notices.wait(Disconnected)).code != CloseCode.NORMAL
            assert (await notices.wait(Reconnected)).session == alice.session != first
            assert alice.connected
            assert alice.reconnects == 1
            async with dial(service, "b") as bob:
                await bob.publish("topic:u", "not this")
                assert (await bob.publish("topic:t", "this")).nodes == 1
            assert (await alice.receive()).data == "this"

    run(test())


def test_requests_made_without_a_connection_wait_for_the_next_one(run, dial):
    async def test():
        notices = Notices()
        async with serving() as service, dial(service, "a", on_notice=notices) as alice:
            await alice.subscribe("topic:t")
            service.stop()
            await notices.wait(Disconnected)
            assert not alice.connected
            alice.post("user:a", "posted")
            waiting = asyncio.create_task(alice.publish("topic:t", "asked"))
            await asyncio.sleep(0)
            service.start()
            # Resubscribed before the request went out: its message comes back.
            assert (await waiting).nodes == 1
            assert [(await alice.receive()).data for _ in range(2)] == ["posted", "asked"]

    run(test())


GIVE_UP = (CloseCode.NORMAL, CloseCode.REVOKED, CloseCode.TOKEN_EXPIRED, CloseCode.MALFORMED)
COME_BACK = (CloseCode.GOING_AWAY, CloseCode.SLOW_CONSUMER, CloseCode.SERVICE_RESTART)


@pytest.mark.parametrize("code", GIVE_UP)
def test_give_up_codes_end_the_client(run, dial, code):
    async def test():
        async with serving() as service, dial(service, "a") as alice:
            await alice.send("user:a", "before")
            service.hub.close(service.session(alice), code, "because")
            got = []
            with pytest.raises(ConnectionClosed) as caught:
                got.extend([message.data async for message in alice])
            assert (caught.value.code, caught.value.reason) == (code, "because")
            with pytest.raises(ConnectionClosed):
                await alice.send("user:a", "after")
            assert not service.hub.sessions

    run(test())


@pytest.mark.parametrize("code", COME_BACK)
def test_other_codes_bring_the_client_back(run, dial, code):
    async def test():
        notices = Notices()
        async with serving() as service, dial(service, "a", on_notice=notices) as alice:
            service.hub.close(service.session(alice), code, "because")
            lost = await notices.wait(Disconnected)
            assert (lost.code, lost.reason) == (code, "because")
            await notices.wait(Reconnected)
            assert await alice.presence("user:a")

    run(test())


def test_an_expired_token_is_renewed_when_it_can_be(run, dial):
    async def test():
        notices, given = Notices(), []

        def token() -> str:
            given.append(1)
            return ""

        async with (
            serving() as service,
            dial(service, "a", on_notice=notices, token=token) as alice,
        ):
            service.hub.close(service.session(alice), CloseCode.TOKEN_EXPIRED, "over")
            await notices.wait(Reconnected)
            assert len(given) == 2

    run(test())


def test_what_a_token_function_raises_ends_the_client_with_that_cause(run, dial):
    async def test():
        tokens = [""]
        async with serving() as service, dial(service, "a", token=tokens.pop) as alice:
            service.session(alice).sink.abort()
            with pytest.raises(ConnectionClosed) as caught:
                await alice.receive()
            assert isinstance(caught.value.__cause__, IndexError)

    run(test())


class Changing:
    """Admits with rights that can be taken away between two hellos."""

    def __init__(self) -> None:
        self.subscribe = EVERYTHING
        self.error: Exception | None = None
        self.refused = asyncio.Event()

    def authenticate(self, hello: Hello) -> Grant:
        if self.error is not None:
            self.refused.set()
            raise self.error
        return Grant(app="default", address=hello.as_, send=EVERYTHING, subscribe=self.subscribe)


def test_a_topic_that_is_refused_after_a_reconnect_is_told(run, dial):
    async def test():
        notices, access = Notices(), Changing()
        async with (
            serving(authenticator=access) as service,
            dial(service, "a", on_notice=notices) as alice,
        ):
            await alice.subscribe("topic:t")
            access.subscribe = NOTHING
            service.session(alice).sink.abort()
            told = await notices.wait(Unsubscribed)
            assert told.topic == "topic:t"
            assert isinstance(told.error, Forbidden)
            await notices.wait(Reconnected)
            assert alice.subscriptions == ()

    run(test())


@pytest.mark.parametrize("error", [Forbidden("token: no more"), BadRequest("as: what")])
def test_a_refused_return_ends_the_client(run, dial, error):
    async def test():
        access = Changing()
        async with serving(authenticator=access) as service, dial(service, "a") as alice:
            access.error = error
            service.session(alice).sink.abort()
            with pytest.raises(ConnectionClosed, match=error.reason):
                await alice.receive()

    run(test())


def test_an_overloaded_hub_is_tried_again(run, dial):
    async def test():
        access, notices = Changing(), Notices()
        async with (
            serving(authenticator=access) as service,
            dial(service, "a", on_notice=notices) as alice,
        ):
            access.error = Overload("too many")
            service.session(alice).sink.abort()
            await notices.wait(Disconnected)
            await access.refused.wait()
            access.error = None
            await notices.wait(Reconnected)

    run(test())


def test_a_draining_hub_is_left_after_the_delay_it_names(run, dial):
    async def test():
        notices = Notices()
        async with serving() as service, dial(service, "a", on_notice=notices) as alice:
            loop, told_at = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            service.hub.drain("upgrade", 80)
            service.hub.draining = False  # as if another node took the client in
            told = await notices.wait(Draining)
            assert (told.reason, told.after_s) == ("upgrade", 0.08)
            # Until then the old connection serves.
            first = alice.session
            await alice.send("user:a", 1)
            assert alice.session == first
            await notices.wait(Reconnected)
            assert loop.time() - told_at >= 0.08
            assert alice.session != first
            assert first not in service.hub.sessions
            assert await alice.presence("user:a")

    run(test())


def test_a_hub_that_closes_while_it_drains_is_not_called_before_its_time(run, dial):
    async def test():
        notices = Notices()
        async with serving() as service, dial(service, "a", on_notice=notices):
            loop, told_at = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            service.hub.drain("upgrade", 150)
            await notices.wait(Draining)
            service.stop()
            await notices.wait(Disconnected)
            service.start()
            await notices.wait(Reconnected)
            assert loop.time() - told_at >= 0.15

    run(test())


def test_a_hub_that_refuses_while_draining_is_tried_until_it_takes_clients(run, dial):
    async def test():
        notices = Notices()
        async with serving() as service, dial(service, "a", on_notice=notices) as alice:
            service.hub.drain("upgrade", 1)
            await notices.wait(Disconnected)
            for _ in range(5):
                await asyncio.sleep(0.01)
                assert not alice.connected
            service.stop()
            service.start()
            await notices.wait(Reconnected)

    run(test())


def test_heartbeats_keep_an_idle_session_alive(run, dial):  # H4
    async def test():
        notices = Notices()
        options = HubOptions(heartbeat_s=0.05)
        async with serving(options) as service, dial(service, "a", on_notice=notices) as alice:
            first = alice.session
            await asyncio.sleep(0.5)
            assert alice.session == first
            assert service.session(alice).beats_missed <= 1
            assert not notices

    run(test())


def test_close_during_a_reconnect_ends_at_once(run, dial):
    async def test():
        notices = Notices()
        async with serving() as service:
            alice = await dial(service, "a", on_notice=notices)
            service.stop()
            await notices.wait(Disconnected)
            asking = asyncio.create_task(alice.presence("user:a"))
            await asyncio.sleep(0)
            await alice.close()
            with pytest.raises(ConnectionClosed):
                await asking
            service.start()

    run(test())
