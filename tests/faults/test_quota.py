"""Quotas and rates: what is too much is answered with overload, to those alone who overdo it."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from chappe.wire.ops import Publish, Send, Subscribe

from .conftest import StartNode
from .peer import FORMS, Peer, connect
from .process import Api, NodeProcess

CONFIG = """
[hub.quotas.crowded]
connections = 3
[hub.quotas.chatty]
messages_per_s = 20
[hub.quotas.terse]
messages_per_s = 2
[hub.quotas.bulky]
bytes_per_s = 100000
"""
DATA = msgspec.Raw(b"1")


def member(node: NodeProcess, form: str, as_: str, app: str | None = None) -> Peer:
    peer = connect(node.addresses, form)
    assert peer.greet(as_, app=app)["ok"]
    return peer


def publish_many(peer: Peer, count: int, data: msgspec.Raw = DATA) -> list[bool]:
    """Publish at once; return which were accepted. The others are answered with overload."""
    peer.say(*(Publish(id=n, to="topic:a", data=data) for n in range(count)))
    replies = [peer.hear_op("reply") for _ in range(count)]
    assert [reply["id"] for reply in replies] == list(range(count))
    assert all(
        r["ok"] or (r["error"], r["reason"][:10]) == ("overload", "rate limit") for r in replies
    )
    return [reply["ok"] for reply in replies]


def wait_until_accepted(peer: Peer, data: msgspec.Raw = DATA) -> None:
    deadline = time.monotonic() + 30
    while not publish_many(peer, 1, data)[0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("form", FORMS)
def test_app_holds_as_many_connections_as_it_may(node: NodeProcess, form: str) -> None:
    peers = [member(node, form, f"user:{n}", "crowded") for n in range(3)]
    with connect(node.addresses, form) as refused:
        reply = refused.greet("user:3", app="crowded")
        assert (reply["ok"], reply["error"]) == (False, "overload")
        assert "crowded" in reply["reason"]
        assert refused.hear()["code"] == 4008
    with member(node, form, "user:3"):
        pass  # another app has its own
    peers.pop().sock.close()
    deadline = time.monotonic() + 30
    while True:
        with connect(node.addresses, form) as again:
            if again.greet("user:3", app="crowded")["ok"]:
                break
        assert time.monotonic() < deadline
    for peer in peers:
        peer.sock.close()


@pytest.mark.parametrize("form", FORMS)
def test_app_says_as_many_messages_a_second_as_it_may(node: NodeProcess, form: str) -> None:
    with (
        member(node, form, "user:a", "chatty") as first,
        member(node, form, "user:b", "chatty") as second,
        member(node, form, "user:a") as other,
    ):
        wait_until_accepted(first)
        assert sum(publish_many(first, 200)) < 200
        # The quota is the app's, not the session's; what it has not is nobody else's either.
        assert sum(publish_many(second, 200)) < 200
        assert all(publish_many(other, 200))
        wait_until_accepted(first)


@pytest.mark.parametrize("form", FORMS)
def test_app_says_as_many_bytes_a_second_as_it_may(node: NodeProcess, form: str) -> None:
    large = msgspec.Raw(b'"' + b"x" * 40_000 + b'"')
    with member(node, form, "user:a", "bulky") as peer, member(node, form, "user:a") as other:
        wait_until_accepted(peer, large)
        assert sum(publish_many(peer, 10, large)) < 10
        assert all(publish_many(other, 10, large))
        wait_until_accepted(peer, large)


def test_list_of_receivers_counts_each(node: NodeProcess) -> None:
    with member(node, "tcp", "user:a", "chatty") as peer:
        # More than a second's worth can never be had at once.
        reply = peer.ask(Send(id=2, to=[f"user:{n}" for n in range(30)], data=DATA))
        assert (reply["ok"], reply["error"]) == (False, "protocol")
        assert "30 messages at once" in reply["reason"]


def test_quota_holds_over_http(node: NodeProcess, api: Api) -> None:
    body = json.dumps({"as": "user:http", "app": "terse", "to": "topic:a", "data": 1}).encode()
    statuses = [api.request("POST", "/v1/publish", body)[0] for _ in range(100)]
    assert set(statuses) == {200, 503}


def test_each_session_has_a_rate_of_its_own(start_node: StartNode) -> None:
    node = start_node("[hub.rate]\nmessages_per_s = 20\n")
    with member(node, "tcp", "user:a") as first, member(node, "text", "user:a") as second:
        with member(node, "packed", "user:reader") as reader:
            assert reader.ask(Subscribe(id=2, to="topic:a"))["ok"]
            accepted = publish_many(first, 200)
            assert 20 <= sum(accepted) < 200
            # Another session of the same user still has all of its own.
            assert all(publish_many(second, 20))
            # Receiving is not limited, and what was refused was not delivered.
            for _ in range(sum(accepted) + 20):
                assert reader.hear()["op"] == "message"
        assert sum(publish_many(first, 200)) < 200
        wait_until_accepted(first)


def test_refused_without_an_id_is_counted_not_answered(start_node: StartNode) -> None:
    node = start_node("[hub.rate]\nmessages_per_s = 10\n")
    api = Api(node)
    with member(node, "tcp", "user:a") as peer:
        peer.say(*(Publish(to="topic:a", data=DATA) for _ in range(500)))
        assert peer.ask(Subscribe(id=2, to="topic:a"))["ok"]
        refused = api.metric("refusals_total", error="overload")
        assert api.metric("messages_total", op="publish") + refused == 500
        assert refused > 400
    api.close()
