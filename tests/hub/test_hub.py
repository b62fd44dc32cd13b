"""Admission, quotas, rates, draining and closing."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import CloseCode, ConfigError, Overload
from chappe.hub.grant import EVERYTHING, Grant
from chappe.hub.options import AppQuota, HubOptions, Quota, Rate
from chappe.wire.encoding import STREAM
from chappe.wire.ops import Hello, Presence, Reconnect, Reply, Subscribe
from tests.hub.rig import KeptSink, Rig, publish, send
from tests.loop import on_loop


class Bearers:
    """Grants everything to everybody; the token names itself, and when it ends."""

    def __init__(self, expires_at: float | None = None) -> None:
        self.expires_at = expires_at

    def authenticate(self, hello: Hello) -> Grant:
        return Grant(
            app=hello.app or "default",
            address=hello.as_,
            send=EVERYTHING,
            publish=EVERYTHING,
            subscribe=EVERYTHING,
            expires_at=self.expires_at,
            token_id=hello.token,
        )


@on_loop
async def test_a_node_holds_so_many_connections_and_no_more() -> None:
    rig = Rig(options=HubOptions(connections_max=2))
    first, _ = rig.stranger(), rig.endpoint("a")
    with pytest.raises(Overload, match="2 connections"):
        rig.stranger()
    rig.hub.lost(first.session)
    rig.stranger()


@on_loop
async def test_an_apps_connections_are_bounded_by_its_quota_and_others_are_not() -> None:
    quotas = {"small": AppQuota(connections=1)}
    rig = Rig(options=HubOptions(quotas=quotas), authenticator=Bearers())
    first, second = rig.stranger(), rig.stranger()
    first.say(Hello(id=1, as_="user:a", app="small"))
    second.say(Hello(id=1, as_="user:b", app="small"))
    await rig.tick()
    assert first.reply().ok
    reply = second.reply()
    assert (reply.ok, reply.error) == (False, "overload")
    assert second.sink.closed is not None
    assert second.sink.closed[0] == CloseCode.QUOTA
    for name in "abc":
        rig.endpoint(name, app="large")
    rig.hub.lost(first.session)
    rig.endpoint("c", app="small")
    with pytest.raises(Overload, match="1 connections"):
        rig.endpoint("d", app="small")


@pytest.mark.parametrize("to", ["user:nobody", "topic:t", "service:s"])
@on_loop
async def test_asking_who_is_online_counts_as_a_message(to: str) -> None:  # H8
    rig = Rig(options=HubOptions(rate=Rate(messages_per_s=5)))
    alice = rig.endpoint("alice")
    alice.say(*(Presence(id=n, to=to) for n in range(8)))
    await rig.tick()
    assert [reply.error for reply in alice.heard()] == [None] * 5 + ["overload"] * 3


@on_loop
async def test_more_than_the_rate_answers_overload_and_the_next_second_goes_on() -> None:
    rig = Rig(options=HubOptions(rate=Rate(messages_per_s=5)))
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(*(send("user:bob", n, id=n) for n in range(8)))
    await rig.tick()
    assert [op.error for op in alice.heard()] == [None] * 5 + ["overload"] * 3
    assert bob.got() == list(range(5))
    rig.clock.now_s += 1
    alice.say(publish("topic:t", 1, id=1), send(["user:bob", "user:alice"], 9, id=2))
    await rig.tick()
    replies = [op for op in alice.heard() if isinstance(op, Reply)]
    assert [reply.ok for reply in replies] == [True, True]
    # A list costs what it has receivers: one publish and two sends leave two of five.
    alice.say(send(["user:bob", "user:alice", "user:x"], 9, id=3), send("user:bob", 10, id=4))
    await rig.tick()
    replies = [op for op in alice.heard() if isinstance(op, Reply)]
    assert [reply.error for reply in replies] == ["overload", None]


@on_loop
async def test_messages_without_an_id_are_held_to_the_rate_too() -> None:
    rig = Rig(options=HubOptions(rate=Rate(messages_per_s=5)))
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    alice.say(*(send("user:bob", n) for n in range(100)))
    await rig.tick()
    assert bob.got() == list(range(5))
    assert rig.recorder.refusals == {"overload": 95}


@on_loop
async def test_an_apps_quota_bounds_its_sessions_together_and_no_other_app() -> None:
    quotas = {"small": AppQuota(messages_per_s=10)}
    rig = Rig(options=HubOptions(quotas=quotas), authenticator=Bearers())
    senders = [rig.endpoint(f"s{n}", app="small") for n in range(3)]
    sink = rig.endpoint("sink", app="small")
    for sender in senders:
        sender.say(*(send("user:sink", n) for n in range(10)))
    other, others_sink = rig.endpoint("s0", app="large"), rig.endpoint("sink", app="large")
    other.say(*(send("user:sink", n) for n in range(50)))
    await rig.tick()
    assert len(sink.got()) == 10
    assert len(others_sink.got()) == 50


@on_loop
async def test_a_session_that_leaves_gives_back_what_it_held_of_its_apps_quota() -> None:
    rig = Rig(options=HubOptions(quota=Quota(messages_per_s=1000)))
    rig.endpoint("stays")  # and the app with it
    for n in range(200):  # each takes ten ahead and uses one of them
        visitor = rig.endpoint("visitor")
        visitor.say(publish("topic:t", n, id=n))
        await rig.tick()
        assert visitor.reply().ok
        rig.hub.lost(visitor.session)


@on_loop
async def test_draining_takes_nobody_new_and_sends_everybody_elsewhere() -> None:
    rig = Rig()
    alice, stranger = rig.endpoint("alice"), rig.stranger()
    rig.hub.drain("going", 2000)
    await rig.tick()
    for endpoint in (alice, stranger):
        (notice,) = endpoint.heard()
        assert isinstance(notice, Reconnect)
        assert (notice.reason, notice.after_ms) == ("going", 2000)
    with pytest.raises(Overload, match="draining"):
        rig.stranger()
    # Who is still here is served until it leaves.
    alice.say(send("user:alice", 1, id=1))
    await rig.tick()
    assert alice.got() == [1]


@on_loop
async def test_waiting_for_a_leave_ends_with_a_leave_or_with_its_time() -> None:
    rig = Rig()
    alice = rig.endpoint("alice")
    await rig.hub.wait_for_leave(0.01)
    assert not alice.session.closed
    waiting = asyncio.ensure_future(rig.hub.wait_for_leave(30))
    await asyncio.sleep(0)
    rig.hub.lost(alice.session)
    await asyncio.wait_for(waiting, 5)


@on_loop
async def test_stopping_closes_every_session() -> None:
    rig = Rig()
    alice, stranger = rig.endpoint("alice"), rig.stranger()
    rig.hub.stop()
    assert alice.sink.closed == stranger.sink.closed == (CloseCode.GOING_AWAY, "the hub stopped")
    assert not rig.hub.sessions


@on_loop
async def test_a_revoked_token_closes_its_own_sessions_only() -> None:
    rig = Rig(authenticator=Bearers())
    stolen = [rig.stranger() for _ in range(2)]
    for endpoint in stolen:
        endpoint.say(Hello(as_="user:a", token="t1"))
    other_token, other_app, stranger = rig.stranger(), rig.stranger(), rig.stranger()
    other_token.say(Hello(as_="user:a", token="t2"))
    other_app.say(Hello(as_="user:a", token="t1", app="another"))
    assert rig.hub.close_token("default", "t1") == 2
    assert [e.sink.closed for e in stolen] == [(CloseCode.REVOKED, "the token was revoked")] * 2
    assert len(rig.hub.sessions) == 3
    assert stranger.sink.closed is None
    assert rig.hub.close_token("default", "t1") == 0


@on_loop
async def test_a_session_ends_with_its_token() -> None:
    rig = Rig(authenticator=Bearers())
    rig.hub._authenticator.expires_at = rig.clock.wall_ms() / 1000 + 60  # type: ignore[attr-defined]
    alice = rig.endpoint("alice")
    rig.hub._beat(alice.session)
    assert not alice.session.closed
    rig.clock.now_s += 61
    rig.hub._beat(alice.session)
    assert alice.sink.closed == (CloseCode.TOKEN_EXPIRED, "the token expired")


@on_loop
async def test_a_session_that_ends_leaves_nothing_behind() -> None:
    rig = Rig()
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    bob.say(*(Subscribe(to=f"topic:{n}") for n in range(20)))
    rig.hub.pause(bob.session)
    alice.say(send("user:bob", 1), publish("topic:3", 2))
    await rig.tick()
    rig.hub.lost(bob.session)
    rig.hub.lost(bob.session)
    rig.hub.close(bob.session, CloseCode.NORMAL, "")
    assert bob.sink.closed is None
    app = rig.hub.apps["default"]
    assert (len(app.topics), list(app.endpoints), app.sessions) == (0, ["user:alice"], 1)
    assert rig.hub.outboxes.held_bytes == 0
    assert list(rig.hub.sessions) == [alice.session.id]


@on_loop
async def test_a_session_may_be_opened_paused() -> None:
    rig = Rig()
    sink = KeptSink()
    session = rig.hub.open("poll", STREAM, sink, "here", paused=True)
    rig.hub.admit(session, Hello(as_="user:poll"))
    alice = rig.endpoint("alice")
    alice.say(send("user:poll", 1, id=1))
    await rig.tick()
    assert alice.reply().ok
    assert sink.writes == []
    rig.hub.resume(session)
    assert len(sink.writes) == 1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: HubOptions(heartbeat_s=0), "hub.heartbeat_s"),
        (lambda: HubOptions(heartbeats_missed_max=0), "hub.heartbeats_missed_max"),
        (lambda: HubOptions(outbox_bytes_max=-1), "hub.outbox_bytes_max"),
        (lambda: HubOptions(outboxes_bytes_max=0), "hub.outboxes_bytes_max"),
        (lambda: HubOptions(poll_lease_s=0), "hub.poll_lease_s"),
        (lambda: HubOptions(hello_timeout_s=0), "hub.hello_timeout_s"),
        (lambda: HubOptions(subscriptions_max=0), "hub.subscriptions_max"),
        (lambda: HubOptions(connections_max=0), "hub.connections_max"),
        (lambda: HubOptions(heartbeat_s=float("nan")), "hub.heartbeat_s"),
        (lambda: HubOptions(heartbeat_s=float("inf")), "hub.heartbeat_s"),
        (lambda: Quota(connections=-1), "hub.quota.connections"),
        (lambda: Rate(messages_per_s=-1), "hub.rate.messages_per_s"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(make, named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        make()


def test_an_apps_own_quota_leaves_the_general_bounds_it_does_not_name() -> None:
    options = HubOptions(
        quota=Quota(connections=10, messages_per_s=20), quotas={"shop": AppQuota(connections=99)}
    )
    assert options.quota_of("shop") == Quota(connections=99, messages_per_s=20)
    assert options.quota_of("other") == Quota(connections=10, messages_per_s=20)


@on_loop
async def test_only_so_many_apps_are_held() -> None:
    rig = Rig(options=HubOptions(apps_max=2))
    rig.endpoint("alice", app="a")
    last = rig.endpoint("alice", app="b")
    with pytest.raises(Overload):
        rig.endpoint("alice", app="c")
    rig.hub.lost(last.session)
    rig.endpoint("alice", app="c")  # a place is free: an app goes with its last session


@on_loop
async def test_leaving_and_coming_back_does_not_fill_an_apps_bucket() -> None:
    rig = Rig(options=HubOptions(quota=Quota(messages_per_s=5)))
    for _ in range(3):
        alice = rig.endpoint("alice")
        for n in range(5):
            alice.say(send("user:alice", n))
        await rig.tick()
        rig.hub.lost(alice.session)
    assert rig.recorder.sends <= 5
