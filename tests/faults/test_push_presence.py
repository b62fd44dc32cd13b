"""Users of the hub and their devices, on several nodes: notes come to all of them that are there,
wait for those that are not, and are taken back where they were not seen first (P7)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chappe.wire.ops import Send, Shown
from chappe.wire.push import GetMessageList, MessageAck, Ok

from .figures import FULL
from .peer import Peer, connect
from .push_layout import AppKey, PushLayout, PushProcess, make_app
from .push_peer import DevicePeer, send, take_ticket

pytestmark = pytest.mark.timeout(120)

ALL = "hub,comet,web,admin"
USER = "user:bob"
DEATHS = 3 if FULL else 1


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushLayout]:
    layout = PushLayout(tmp_path_factory.mktemp("push"), {"h1": ALL, "h2": ALL})
    yield layout
    layout.stop()


@pytest.fixture(scope="module")
def app(layout: PushLayout) -> AppKey:
    """The app of push that has the name of the hub's."""
    return make_app(layout["h1"], "default")


class Polling:
    """A session without a connection."""

    def __init__(self, node: PushProcess) -> None:
        self._node = node
        status, opened = node.ask("POST", "/v1/poll", {"as": USER})
        assert status == 200, opened
        self._session: str = opened["session"]
        self._batch = 0

    def next(self) -> Any:
        """The data of the next message."""
        for _ in range(20):
            body = {"session": self._session, "ack": self._batch, "wait_ms": 1000}
            status, said = self._node.ask("POST", "/v1/poll", body)
            assert status == 200, said
            self._batch = said["batch"]
            found = [op for op in said["messages"] if op["op"] == "message"]
            if found:
                assert len(found) == 1, found
                return found[0]["data"]
        raise AssertionError("nothing came")

    def close(self) -> None:
        self._node.ask("DELETE", f"/v1/poll/{self._session}")


def hello(node: PushProcess) -> Peer:
    peer = connect(node.addresses, "text", beats=True)
    with ExitStack() as failed:
        failed.callback(peer.sock.close)
        greeted = peer.greet(USER)
        assert greeted.get("ok"), greeted
        failed.pop_all()
    return peer


def heard(peer: Peer) -> Any:
    """The data of the next message to a session."""
    said = peer.hear_op("message", "closed")
    assert said["op"] == "message", said
    return said["data"]


def devices(layout: PushLayout, app: AppKey, stack: ExitStack) -> list[DevicePeer]:
    """Two of the user's, each on another node."""
    found = []
    for name in ("h1", "h2"):
        ticket = take_ticket(layout[name], app, f"phone-{name}")
        bound = app.post(layout["h1"], "/v1/push/users/bind", user="bob", client=ticket["client"])
        assert bound.status == 200, bound
        peer = DevicePeer(ticket, layout[name].addresses["comet"])
        found.append(stack.enter_context(peer).login())
    return found


def until_aimed(node: PushProcess, app: AppKey, aimed: int) -> None:
    """Wait until the user has so many clients: one that said hello is made one behind its back."""
    path = "/v1/push/users?user=bob"
    for _ in range(200):
        found = node.ask("GET", path, None, app.headers("GET", path, b"")).body["clients"]
        if len(found) == aimed:
            return
        time.sleep(0.05)
    raise AssertionError(found)


def test_a_user_and_its_devices_get_notes_wherever_they_are(
    layout: PushLayout, app: AppKey
) -> None:  # P7, P8
    with ExitStack() as stack:
        phones = devices(layout, app, stack)
        socket = stack.enter_context(hello(layout["h1"]))
        polling = Polling(layout["h2"])
        stack.callback(polling.close)
        until_aimed(layout["h1"], app, 3)
        # Whichever of them is asked.
        for number, name in enumerate(("h1", "h2")):
            note = send(layout[name], app, user="bob", data={"n": number})["note"]
            wanted = b'{"n": %d}' % number
            assert [phone.notes() for phone in phones] == [[wanted]] * 2
            for data in (heard(socket), polling.next()):
                assert (data["note"], data["data"]) == (note, {"n": number})
            acknowledge(phones, note)
            assert socket.ask(Shown(id=7, notes=[note]))["ok"]


def acknowledge(phones: list[DevicePeer], note: str) -> None:
    for phone in phones:
        phone.say(MessageAck((note,)))
        assert phone.hear() == Ok()


@pytest.mark.parametrize("by", ["socket", "phone"])
def test_what_is_to_be_seen_once_is_taken_back_elsewhere(
    layout: PushLayout, app: AppKey, by: str
) -> None:  # P7
    with ExitStack() as stack:
        phones = devices(layout, app, stack)
        socket = stack.enter_context(hello(layout["h1"]))
        polling = Polling(layout["h2"])
        stack.callback(polling.close)
        until_aimed(layout["h1"], app, 3)
        note = send(layout["h2"], app, user="bob", data=1, once=True)["note"]
        assert [phone.notes() for phone in phones] == [[b"1"]] * 2
        assert heard(socket)["note"] == polling.next()["note"] == note
        if by == "socket":
            assert socket.ask(Shown(id=7, notes=[note]))["ok"]
            assert [phone.notes() for phone in phones] == [[note.encode()]] * 2
        else:
            acknowledge(phones[:1], note)
            assert phones[1].notes() == [note.encode()]
            assert heard(socket) == {"retract": note}
            assert polling.next() == {"retract": note}


def test_what_nobody_was_there_for_comes_once_to_each_that_comes(
    layout: PushLayout, app: AppKey
) -> None:  # P7
    with ExitStack() as stack:
        devices(layout, app, stack)
        stack.enter_context(hello(layout["h1"]))
        until_aimed(layout["h1"], app, 3)
    until_gone(layout, app)
    sent = send(layout["h1"], app, user="bob", data="late")
    assert (sent["aimed"], sent["sent"]) == (3, 0)
    note = sent["note"]
    for name in ("h1", "h2"):
        ticket = take_ticket(layout[name], app, f"phone-{name}")
        for wanted in ([b'"late"'], []):
            with DevicePeer(ticket, layout[name].addresses["comet"]).login() as phone:
                assert phone.waiting == wanted
                if wanted:
                    acknowledge([phone], note)
                    # When this is answered, the one before was settled.
                    phone.say(GetMessageList())
                    assert phone.notes() == []
                    time.sleep(0.3)
    # On another node than the one it was on.
    with hello(layout["h2"]) as socket:
        assert heard(socket)["note"] == note
        assert socket.ask(Shown(id=7, notes=[note]))["ok"]
        time.sleep(0.3)
    with hello(layout["h1"]) as socket:
        time.sleep(0.3)
        socket.say(Send(id=8, to=USER, data="own"))
        assert heard(socket) == "own"


def test_what_is_sent_by_one_that_has_just_begun_comes_to_a_session_once(
    layout: PushLayout, app: AppKey
) -> None:  # P7
    with ExitStack() as stack:
        devices(layout, app, stack)
        socket = stack.enter_context(hello(layout["h1"]))
        until_aimed(layout["h1"], app, 3)
        for _ in range(DEATHS):
            layout["h2"].kill()
            layout["h2"].start()
            sent = [send(layout["h2"], app, user="bob", data=n)["note"] for n in range(3)]
            assert sorted([heard(socket)["note"] for _ in sent]) == sorted(sent)
            assert socket.ask(Shown(id=7, notes=sent))["ok"]
        socket.say(Send(id=8, to=USER, data="own"))
        assert heard(socket) == "own"


def until_gone(layout: PushLayout, app: AppKey) -> None:
    """Wait until no client of the user is anywhere."""
    path = "/v1/push/users?user=bob"
    node = layout["h1"]
    for _ in range(200):
        clients = node.ask("GET", path, None, app.headers("GET", path, b"")).body["clients"]
        where = []
        for client in clients:
            look = f"/v1/push/clients?client={client['client']}"
            where.append(node.ask("GET", look, None, app.headers("GET", look, b"")).body["comet"])
        if where == [None] * 3:
            return
        time.sleep(0.05)
    raise AssertionError(where)
