"""What strangers, thieves and broken devices say to push, on the ports of real processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from chappe.wire.push import (
    Command,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    Heartbeat,
    MessageAck,
    Ok,
    PushError,
    Subscribe,
    Unsubscribe,
)

from .push_layout import Answer, AppKey, PushLayout, encode, make_app
from .push_peer import DevicePeer, send, take_ticket

pytestmark = pytest.mark.timeout(120)

TOKEN_LIFE_S = 3
LOGIN_S = 2
HOUR_MS = 3600 * 1000
TARGET = "/v1/push/send"
COMETS = f"[push.comet]\nlogin_s = {LOGIN_S}\n"
OTHERS: tuple[Command, ...] = (
    ExchangeKey(bytes(33)),
    GetTopicList(),
    Subscribe(("news",)),
    Unsubscribe(("news",)),
    GetMessageList(),
    Heartbeat(),
    MessageAck(("p0000000000000000"[:16],)),
)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushLayout]:
    layout = PushLayout(
        tmp_path_factory.mktemp("push"),
        c1=COMETS,
        c2=COMETS,
        # Of the web they live for a week.
        a1=f"[push.desk]\ntoken_life_s = {TOKEN_LIFE_S}\n",
    )
    yield layout
    layout.stop()


@pytest.fixture(scope="module")
def app(layout: PushLayout) -> AppKey:
    return make_app(layout["a1"], "shop")


@pytest.fixture
def ticket(request: pytest.FixtureRequest, layout: PushLayout, app: AppKey) -> dict[str, Any]:
    return take_ticket(layout["w1"], app, request.node.name.replace(" ", "-")[:64])


def comets(layout: PushLayout) -> list[str]:
    return [layout[name].addresses["comet"] for name in ("c1", "c2")]


def test_a_token_that_expires_ends_its_session_and_begins_no_other(
    layout: PushLayout, app: AppKey
) -> None:  # P5
    status, ticket = app.post(layout["a1"], "/v1/push/tokens", device="expiring")
    assert status == 200, ticket
    with DevicePeer(ticket).login() as peer:
        assert peer.sent_away().code == PushError.TOKEN_EXPIRED
        assert time.time() * 1000 < ticket["expires_ms"] + 3000
    with DevicePeer(ticket) as peer:
        peer.auth()
        assert peer.sent_away().code == PushError.TOKEN_EXPIRED


@pytest.mark.parametrize("which", ["token", "client", "device"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_token_that_is_revoked_ends_its_session_within_a_second(
    layout: PushLayout, app: AppKey, ticket: dict[str, Any], which: str, at: int
) -> None:  # P5, P10
    told = {"token": ticket["token"], "client": ticket["client"]}
    told["device"] = app_device(layout, app, ticket)
    with DevicePeer(ticket, comets(layout)[at]).login() as peer:
        began = time.monotonic()
        answer = app.post(layout["a1"], "/v1/push/tokens/revoke", **{which: told[which]})
        assert answer.status == 200, answer
        assert peer.sent_away().code == PushError.TOKEN_EXPIRED
        assert time.monotonic() - began < 1
    with DevicePeer(ticket, comets(layout)[1 - at]) as peer:
        peer.auth()
        assert peer.sent_away().code == PushError.TOKEN_EXPIRED


def app_device(layout: PushLayout, app: AppKey, ticket: dict[str, Any]) -> str:
    path = f"/v1/push/clients?client={ticket['client']}"
    answer = layout["a1"].ask("GET", path, None, app.headers("GET", path, b""))
    return str(answer.body["client"]["device"])


def test_a_client_that_is_removed_is_told_so(
    layout: PushLayout, app: AppKey, ticket: dict[str, Any]
) -> None:
    path = f"/v1/push/clients?client={ticket['client']}"
    with DevicePeer(ticket).login() as peer:
        assert (
            layout["a1"].ask("DELETE", path, None, app.headers("DELETE", path, b"")).status == 200
        )
        assert peer.sent_away().code == PushError.CLIENT_NOT_FOUND
    with DevicePeer(ticket) as peer:
        peer.auth()
        assert peer.sent_away().code == PushError.CLIENT_NOT_FOUND


def test_a_token_is_good_for_its_own_client_only(
    layout: PushLayout, app: AppKey, ticket: dict[str, Any]
) -> None:
    other = take_ticket(layout["w1"], app, "another")
    for client in (other["client"], "c000000000000000", "nobody"):
        with DevicePeer(ticket | {"client": client}) as peer:
            peer.auth()
            assert peer.sent_away().code == PushError.CLIENT_NOT_FOUND
    with DevicePeer(ticket | {"token": "x" * 43}) as peer:
        peer.auth()
        assert peer.sent_away().code == PushError.TOKEN_EXPIRED


def ask(layout: PushLayout, app: AppKey, body: bytes, **signed: Any) -> Answer:
    return layout["a1"].ask("POST", TARGET, body, app.headers("POST", TARGET, body, **signed))


@pytest.fixture
def body(ticket: dict[str, Any]) -> bytes:
    return encode({"client": ticket["client"], "data": 1})


def test_a_request_that_is_made_twice_is_refused(
    layout: PushLayout, app: AppKey, body: bytes, ticket: dict[str, Any]
) -> None:  # P10
    headers = app.headers("POST", TARGET, body)
    answers = [layout["a1"].ask("POST", TARGET, body, headers) for _ in range(2)]
    assert [each.status for each in answers] == [200, 401]
    assert "replay" in answers[1].body["reason"]
    # Nor does a restart forget it.
    layout["a1"].kill()
    layout["a1"].start()
    assert layout["a1"].ask("POST", TARGET, body, headers).status == 401
    with DevicePeer(ticket).login() as peer:
        assert peer.waiting == [b"1"]


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS])
def test_an_app_server_whose_clock_is_off_by_an_hour_is_told_the_time(
    layout: PushLayout, app: AppKey, body: bytes, off_ms: int
) -> None:  # P10
    answer = ask(layout, app, body, off_ms=off_ms)
    assert answer.status == 401
    assert answer.body["reason"].startswith("x-chappe-time: 3")
    told = int(answer.body["reason"].partition("whose time is ")[2].partition(";")[0])
    assert abs(told - time.time() * 1000) < 5000
    assert ask(layout, app, body, off_ms=off_ms // 20).status == 200


def test_what_is_not_signed_with_the_apps_secret_is_refused(
    layout: PushLayout, app: AppKey, body: bytes
) -> None:  # P10
    stranger = app._replace(secret="x" * 43)
    answer = ask(layout, stranger, body)
    assert (answer.status, answer.body["reason"][:18]) == (401, "x-chappe-signature")
    headers = app.headers("POST", TARGET, body)
    changed = encode({"topic": "all", "data": 1})
    assert layout["a1"].ask("POST", TARGET, changed, headers).status == 401
    assert layout["a1"].ask("POST", TARGET + "?x=1", body, headers).status == 401
    assert layout["a1"].ask("POST", TARGET, body).status == 401
    answer = ask(layout, app._replace(key="nobody"), body)
    assert (answer.status, answer.body["reason"][:12]) == (401, "x-chappe-app")


@pytest.mark.parametrize("second", [0, 1])
def test_a_second_login_ends_the_first_on_the_same_comet_and_on_another(
    layout: PushLayout, app: AppKey, ticket: dict[str, Any], second: int
) -> None:  # P3
    at = comets(layout)
    with DevicePeer(ticket, at[0]).login() as first, DevicePeer(ticket, at[second]) as other:
        first.say(Subscribe(("moved",)))
        assert first.hear() == Ok()
        began = time.monotonic()
        other.login()
        assert first.sent_away().code == PushError.DUPLICATE
        assert time.monotonic() - began < 1
        # The one before has told the store by now that it left.
        time.sleep(0.3)
        assert send(layout["a1"], app, client=ticket["client"], data=2)["sent"] == 1
        assert other.notes() == [b"2"]
        assert send(layout["a1"], app, topic="moved", data=3)["sent"] >= 1
        assert other.notes() == [b"3"]


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: type(command).__name__)
def test_nothing_but_auth_comes_first(
    layout: PushLayout, ticket: dict[str, Any], command: Command
) -> None:  # P3
    with DevicePeer(ticket) as peer:
        peer.say(command)
        error = peer.sent_away()
    assert error.code == PushError.BAD_ARGUMENTS
    assert "auth is wanted first" in error.reason


@pytest.mark.parametrize("command", OTHERS, ids=lambda command: type(command).__name__)
def test_nothing_but_the_key_comes_after_auth(
    layout: PushLayout, ticket: dict[str, Any], command: Command
) -> None:  # P3
    with DevicePeer(ticket) as peer:
        peer.auth()
        assert peer.hear() is not None
        peer.say(command)
        if isinstance(command, Heartbeat):
            assert peer.hear() == Ok()
        else:
            assert peer.sent_away().code == PushError.BAD_ARGUMENTS


def test_a_connection_logs_in_once(layout: PushLayout, ticket: dict[str, Any]) -> None:  # P3
    with DevicePeer(ticket).login() as peer:
        peer.auth()
        peer.say(ExchangeKey(bytes(33)), Heartbeat())
        assert [peer.hear_error().code for _ in range(2)] == [PushError.BAD_ARGUMENTS] * 2
        assert peer.hear() == Ok()


def test_garbage_before_auth_is_answered_once_and_ends_the_connection(
    layout: PushLayout, ticket: dict[str, Any]
) -> None:  # P2
    rng = Random(7)
    for _ in range(50):
        with DevicePeer(ticket) as peer:
            garbage = b"\x00" + rng.randbytes(rng.randrange(1, 400))
            peer.sock.sendall(garbage + bytes(260))
            assert peer.sent_away().code == PushError.BAD_ARGUMENTS


def test_a_frame_that_never_ends_is_not_waited_for(
    layout: PushLayout, ticket: dict[str, Any]
) -> None:
    with DevicePeer(ticket) as silent, DevicePeer(ticket) as slow:
        slow.sock.sendall(b"\x00\x20\x00")
        for peer in (silent, slow):
            assert peer.sent_away().code == PushError.BAD_ARGUMENTS


def test_the_largest_frames_are_for_those_who_are_known(
    layout: PushLayout, app: AppKey, ticket: dict[str, Any]
) -> None:  # P2
    largest = b"\xff\xff"
    with DevicePeer(ticket) as peer:
        peer.sock.sendall(largest + bytes(65_535))
        assert peer.sent_away().code == PushError.BAD_ARGUMENTS
    with DevicePeer(ticket).login() as peer:
        # One that is no command, one that is none of any length, and one that is.
        peer.sock.sendall(largest + b"\x63" + bytes(65_534))
        assert peer.hear_error().code == PushError.BAD_ARGUMENTS
        peer.sock.sendall(largest + b"\x07" + bytes(65_534))
        assert peer.hear_error().code == PushError.BAD_ARGUMENTS
        peer.say(Heartbeat())
        assert peer.hear() == Ok()
        # As much as a note may hold arrives in one frame.
        send(layout["a1"], app, client=ticket["client"], data="x" * 59_998)
        assert peer.notes() == [b'"' + b"x" * 59_998 + b'"']
    too_long = app.post(layout["a1"], TARGET, client=ticket["client"], data="x" * 59_999)
    assert (too_long.status, "60000" in too_long.body["reason"]) == (400, True)
