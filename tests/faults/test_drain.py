"""SIGTERM: everybody is sent elsewhere, nothing that was answered ok is lost, exit status 0."""

from __future__ import annotations

import json
import time

import pytest

import chappe.blocking
from chappe.client import Draining, Notice
from chappe.wire.ops import Subscribe

from .conftest import StartNode, Witness
from .peer import FORMS, connect, dial
from .process import Api
from .stuck import ids_of, publish_numbers, send_until_full, stuck_reader

QUICK = "drain_s = 1.0\n"
SMALL = "[hub]\noutbox_bytes_max = 262144\n[limits]\nmessage_bytes_max = 65536\n"


def test_sigterm_tells_clients_to_come_back_elsewhere(start_node: StartNode) -> None:
    node = start_node(QUICK)
    peers = [connect(node.addresses, form) for form in FORMS]
    for form, peer in zip(FORMS, peers, strict=True):
        assert peer.greet(f"user:{form}")["ok"]
    node.terminate()
    for peer in peers:
        with peer:
            told = peer.hear()
            assert (told["op"], told["reason"]) == ("reconnect", "this node is going away")
            assert told["after_ms"] > 0
            closed = peer.hear()
            assert (closed["op"], closed["code"]) == ("closed", 1012)
    node.stop()


def test_sdk_client_leaves_by_itself_when_told(start_node: StartNode) -> None:
    node = start_node("drain_s = 60.0\n")
    notices: list[Notice] = []
    url = node.addresses["websocket"]
    with chappe.blocking.connect(url, as_="user:a", on_notice=notices.append):
        begin = time.monotonic()
        node.stop()
        # Long before the node would have lost its patience.
        assert time.monotonic() - begin < 30
    assert any(isinstance(notice, Draining) for notice in notices)


def test_what_was_answered_ok_before_sigterm_arrives(start_node: StartNode) -> None:
    node = start_node(QUICK)
    with Witness(node).client as sender:
        readers = [connect(node.addresses, form) for form in FORMS]
        accepted: dict[str, list[str]] = {}
        for form, reader in zip(FORMS, readers, strict=True):
            assert reader.greet(f"user:{form}")["ok"]
            accepted[form] = [sender.send(f"user:{form}", "x" * 1000) for _ in range(200)]
        node.terminate()
    for form, reader in zip(FORMS, readers, strict=True):
        with reader:
            heard = list(reader)
            assert ids_of(heard) == accepted[form]
            assert [op["op"] for op in heard[-2:]] == ["reconnect", "closed"]
    node.stop()


def test_backlog_is_delivered_while_draining_to_a_reader_that_wakes_up(
    start_node: StartNode,
) -> None:
    node = start_node("drain_s = 20.0\n" + SMALL)
    witness = Witness(node)
    with stuck_reader(node, "tcp", "user:stuck") as stuck:
        with witness.client:
            accepted = send_until_full(witness, "user:stuck", "x" * 8000)
        node.terminate()
        heard = [stuck.hear()]
        while heard[-1]["op"] != "reconnect":
            heard.append(stuck.hear())
        assert ids_of(heard) == accepted
        stuck.sock.close()
        node.stop()


def test_sigterm_with_stuck_and_idle_clients_ends_in_time(start_node: StartNode) -> None:
    node = start_node(QUICK + SMALL)
    stuck = [stuck_reader(node, form, f"user:stuck-{form}", "topic:a") for form in FORMS]
    idle = [connect(node.addresses, form) for form in FORMS]
    strangers = [dial(node.addresses[edge]) for edge in node.addresses]
    for peer in idle:
        assert peer.greet("user:idle")["ok"]
        assert peer.ask(Subscribe(id=2, to="topic:b"))["ok"]
    publish_numbers(node, "topic:a", 2000, 4000)
    node.stop()
    for peer in (*stuck, *idle):
        peer.sock.close()
    for sock in strangers:
        sock.close()


def test_draining_node_takes_nobody_new(start_node: StartNode) -> None:
    node = start_node("drain_s = 20.0\n")
    api = Api(node)
    assert api.request("GET", "/readyz")[0] == 200
    with connect(node.addresses, "tcp", beats=True) as peer:
        assert peer.greet("user:here")["ok"]
        node.terminate()
        assert peer.hear()["op"] == "reconnect"
        assert api.request("GET", "/readyz")[0] == 503
        for edge in ("websocket", "tcp"):
            with pytest.raises(ConnectionError):
                dial(node.addresses[edge])
        late = Api(node)  # a connection of its own, as a load balancer's probe has
        assert late.request("GET", "/readyz")[0] == 503
        assert late.request("POST", "/v1/poll", b'{"as": "user:late"}')[0] == 503
        late.close()
    api.close()
    node.stop()


def test_polled_session_collects_its_messages_from_a_draining_node(start_node: StartNode) -> None:
    node = start_node("drain_s = 20.0\n")
    api = Api(node)
    opened = json.loads(api.request("POST", "/v1/poll", b'{"as": "user:poller"}')[1])
    ask = json.dumps({"session": opened["session"]}).encode()
    sent = api.request("POST", "/v1/send", b'{"to": "user:poller", "data": "kept"}')
    assert sent[0] == 200
    with connect(node.addresses, "tcp", beats=True) as peer:
        assert peer.greet("user:here")["ok"]
        node.terminate()
        assert peer.hear()["op"] == "reconnect"
        late = Api(node)
        status, answer = late.request("POST", "/v1/poll", ask)
        assert status == 200
        ops = [item["op"] for item in json.loads(answer)["messages"]]
        assert "message" in ops
        assert "reconnect" in ops
        late.request("DELETE", f"/v1/poll/{opened['session']}")
        late.close()
    api.close()
    node.stop()


def test_more_sigterms_change_nothing(start_node: StartNode) -> None:
    node = start_node(QUICK)
    with connect(node.addresses, "tcp") as peer:
        assert peer.greet("user:here")["ok"]
        node.terminate()
        assert peer.hear()["op"] == "reconnect"
        node.terminate()
        assert peer.hear()["code"] == 1012
    # Until the very end, where the event loop and its handlers are gone already.
    while node.running:
        node.terminate()
        time.sleep(0.001)
    node.stop()
