"""What must hold of every run, whatever its seed."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from chappe.errors import CloseCode
from chappe.hub.hub import Hub
from chappe.hub.outbox import TopicFrames
from chappe.wire.ops import Delivery
from tests.simulation.scripted_client import ScriptedClient
from tests.simulation.workload import Accepted, World

# The hub looks at a session once per interval: three whole silent intervals, up to one before the
# first of them, one more to look.
_BEAT_S = 5.0
_SILENT_S_MAX = 5 * _BEAT_S + 1
# The moment in the interval at which a session is looked at moves while others come and go, so that
# a beat may be missed up to one interval early.
_SILENT_S_MIN = 2 * _BEAT_S


def check(world: World) -> None:
    for client in world.connections:
        check_nothing_came_twice(client)
        check_order(client)
        check_only_subscribed_topics_came(client)
    check_accepted_sends(world)
    check_accepted_publishes(world)
    check_silent_sessions_were_closed(world)
    check_nothing_is_left(world)


def check_nothing_came_twice(client: ScriptedClient) -> None:
    ids = [delivery.message for _, delivery in client.deliveries]
    assert len(ids) == len(set(ids)), f"{client.serial} got a message twice"


def check_order(client: ScriptedClient) -> None:
    """What one sender says to one address arrives in the order it was said."""
    last: dict[tuple[str, str], int] = defaultdict(int)
    for _, delivery in client.deliveries:
        sender, number = _origin(delivery)
        assert number > last[sender, delivery.to], f"{client.serial} got {delivery} out of order"
        last[sender, delivery.to] = number


def check_only_subscribed_topics_came(client: ScriptedClient) -> None:
    for at, delivery in client.deliveries:
        if delivery.to.startswith("user:"):
            assert delivery.to == client.user, f"{client.serial} got a message to {delivery.to}"
            continue
        spans = client.subscriptions.get(delivery.to, [])
        assert any(
            span.asked <= at and (span.ended is None or at <= span.ended) for span in spans
        ), f"{client.serial} got {delivery} without being subscribed"


def check_accepted_sends(world: World) -> None:
    """H5: `ok` means in the outbox of a live session, and so received unless that one broke."""
    received = {client.session: _ids(client) for client in world.surviving}
    for send in world.accepted:
        if send.to.startswith("topic:"):
            continue
        assert send.message in world.recorder.taken
        live = [
            session
            for session, life in world.recorder.sessions.items()
            if life.address == send.to
            and life.opened <= send.answered_at
            and (life.closed is None or life.closed >= send.said_at)
        ]
        assert live, f"{send} was answered ok, and nobody was there"
        # One of a user's sessions may have been full; then another one has taken it.
        if all(session in received for session in live):
            assert any(send.message in received[one] for one in live), f"{send} reached nobody"


def check_accepted_publishes(world: World) -> None:
    """Whoever was subscribed all the while, and lost nothing, has it."""
    for client in world.surviving:
        if client.dropped:
            continue
        received = _ids(client)
        for publish in world.accepted:
            if _was_subscribed(client, publish):
                assert publish.message in received, f"{publish} never reached {client.serial}"


def check_silent_sessions_were_closed(world: World) -> None:
    """H4: three missed beats, and a half-open session is closed."""
    for at, client in world.vanished:
        life = world.recorder.sessions.get(client.session)
        if life is not None and life.closed is not None and life.closed >= at:
            assert life.closed - at <= _SILENT_S_MAX, f"{client.serial} stayed for too long"
        assert client.session not in world.hub.sessions
    for life in world.recorder.sessions.values():
        if life.code == CloseCode.HEARTBEAT_LOST:
            assert life.closed is not None
            assert life.closed - life.opened >= _SILENT_S_MIN


def check_now(world: World) -> None:
    """What must hold at any moment."""
    check_accounts(world.hub)
    # A session ends with its connection, not when its silence is noticed.
    assert len(world.hub.sessions) <= len(world.network.streams_of("hub"))


def check_accounts(hub: Hub) -> None:
    """The bounds act on these sums: they are what really waits."""
    for session in hub.outboxes.held:
        backlog = session.backlog or []
        droppable = [data for data in backlog if isinstance(data, TopicFrames)]
        assert session.backlog_bytes == sum(map(len, backlog))
        assert session.droppable_bytes == sum(map(len, droppable))
    assert hub.outboxes.held_bytes == sum(one.backlog_bytes for one in hub.outboxes.held)


def check_nothing_is_left(world: World) -> None:
    """H16: topics are reclaimed with their last subscriber; no session outlives its connection."""
    hub = world.hub
    assert not hub.sessions
    assert not hub.outboxes.held
    assert hub.outboxes.held_bytes == 0
    assert not world.network.streams_of("hub")
    for app in hub.apps.values():
        assert (app.sessions, len(app.endpoints), len(app.topics)) == (0, 0, 0)
    assert all(life.closed is not None for life in world.recorder.sessions.values())


def _origin(delivery: Delivery) -> tuple[str, int]:
    payload: object = delivery.data
    assert isinstance(payload, bytes)
    sender, number, _ = msgspec.json.decode(payload)
    return sender, number


def _ids(client: ScriptedClient) -> set[int]:
    return {int(delivery.message) for _, delivery in client.deliveries}


def _was_subscribed(client: ScriptedClient, publish: Accepted) -> bool:
    return any(
        span.granted is not None and span.granted < publish.said_at and span.ending is None
        for span in client.subscriptions.get(publish.to, [])
    )
