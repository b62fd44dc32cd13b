"""Who may come in, what they may do, and that nothing crosses from one app to another."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

import chappe.blocking
from chappe.access.token import LEEWAY_S
from chappe.errors import Forbidden, Unreachable
from chappe.wire.ops import Presence, Publish, Send, Subscribe

from .conftest import StartNode
from .peer import FORMS, connect
from .process import Api, NodeProcess
from .tokens import App

DATA = msgspec.Raw(b"1")


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> tuple[App, App]:
    folder = tmp_path_factory.mktemp("keys")
    return App(folder, "shop"), App(folder, "bank")


@pytest.fixture(scope="module")
def node(apps: tuple[App, App], start_node: StartNode) -> Iterator[NodeProcess]:
    """A node that wants tokens; whatever happened on it, no secret is in what it wrote."""
    # Tokens are looked at with each beat; nobody is to be closed for missing some.
    options = "[hub]\nheartbeat_s = 0.4\nheartbeats_missed_max = 50\n"
    node = start_node(options + "".join(app.config() for app in apps), dev=False)
    yield node
    node.stop()
    written = node.first_line + node.log()
    assert not [canary for app in apps for canary in app.canaries if canary in written]


@pytest.mark.parametrize("form", FORMS)
def test_permissions_are_held_to(node: NodeProcess, apps: tuple[App, App], form: str) -> None:
    token = apps[0].token(
        "user:alice", send="user:alice*", publish="topic:a", subscribe="topic:b.*"
    )
    with connect(node.addresses, form) as peer:
        assert peer.greet("", token=token)["ok"]
        for op, allowed in (
            (Send(id=2, to="user:alice", data=DATA), True),
            (Send(id=2, to="user:bob", data=DATA), False),
            (Send(id=2, to=["user:alice", "user:bob"], data=DATA), False),
            (Publish(id=2, to="topic:a", data=DATA), True),
            (Publish(id=2, to="topic:ab", data=DATA), False),
            (Publish(id=2, to="topic:b.x", data=DATA), False),
            (Subscribe(id=2, to="topic:b.x"), True),
            (Subscribe(id=2, to="topic:b"), False),
            (Subscribe(id=2, to="topic:a"), False),
        ):
            reply = peer.ask(op)
            assert reply["ok"] is allowed, op
            if not allowed:
                assert reply["error"] == "forbidden"
                assert reply["reason"].startswith("to: this identity may not")
        assert peer.ask(Presence(id=3, to="user:alice"))["online"]


def test_nothing_crosses_between_apps(node: NodeProcess, apps: tuple[App, App]) -> None:
    everything = {"send": "*", "publish": "*", "subscribe": "*"}
    url = node.addresses["websocket"]
    tokens = [app.token("user:alice", **everything) for app in apps]
    lone = apps[0].token("user:bob", **everything)
    with (
        chappe.blocking.connect(url, token=tokens[0]) as shop,
        chappe.blocking.connect(node.addresses["tcp"], token=tokens[1]) as bank,
        chappe.blocking.connect(url, token=lone),
    ):
        for client in (shop, bank):
            client.subscribe("topic:news")
        for client, word in ((shop, "shop"), (bank, "bank")):
            client.send("user:alice", f"{word} send")
            client.publish("topic:news", f"{word} news")
        for client, word in ((shop, "shop"), (bank, "bank")):
            assert [client.receive(30).data for _ in range(2)] == [f"{word} send", f"{word} news"]
        assert shop.presence("user:bob")
        assert not bank.presence("user:bob")
        with pytest.raises(Unreachable):
            bank.send("user:bob", 1)
        # In order: had anything crossed, it would lie before this.
        for client in (shop, bank):
            client.send("user:alice", "last")
            assert client.receive(30).data == "last"


@pytest.mark.parametrize("form", FORMS)
def test_wrong_token_is_turned_away(node: NodeProcess, apps: tuple[App, App], form: str) -> None:
    shop, bank = apps
    for wrong, reason in {
        None: "missing",
        "not a token": "not a JWT",
        shop.forge(secret=bank.secret): "Signature",
        shop.forge(app="bank"): "app",
        shop.forge(exp=int(time.time()) - 60): "expired",
        shop.forge(nbf=int(time.time()) + 60): "not valid yet",
        shop.forge(aud="other"): "udience",
        shop.forge(sub="topic:alice"): "sub",
        shop.forge(send="user:*"): "send",
        shop.forge(exp=1e300): "exp",
        "x" * 10_000: "longer",
    }.items():
        with connect(node.addresses, form) as peer:
            reply = peer.greet("", token=wrong)
            assert (reply["ok"], reply["error"]) == (False, "forbidden")
            assert reply["reason"].startswith("token:")
            assert reason in reply["reason"]
            assert peer.hear()["code"] == 4001


@pytest.mark.parametrize("form", FORMS)
def test_token_serves_its_own_identity_and_app_only(
    node: NodeProcess, apps: tuple[App, App], form: str
) -> None:
    token = apps[0].forge()
    for fields, named in (({"as_": "user:bob"}, "as:"), ({"as_": "", "app": "bank"}, "app:")):
        with connect(node.addresses, form) as peer:
            reply = peer.greet(token=token, **fields)
            assert (reply["error"], reply["reason"][: len(named)]) == ("forbidden", named)
            assert peer.hear()["code"] == 4001


def test_sessions_end_with_their_token(node: NodeProcess, apps: tuple[App, App]) -> None:
    # Clocks may differ by so much: a session ends that much after its token.
    token = apps[0].forge(exp=time.time() - LEEWAY_S + 3)
    peers = [connect(node.addresses, form, beats=True) for form in FORMS]
    for peer in peers:
        assert peer.greet("", token=token)["ok"]
    for peer in peers:
        with peer:
            assert peer.hear()["code"] == 4002


def test_revoked_token_closes_its_sessions_and_no_others(
    node: NodeProcess, apps: tuple[App, App]
) -> None:
    shop, bank = apps
    admin = shop.forge(admin=["*"], sub="user:admin")
    exp = int(time.time()) + 60
    victims = [connect(node.addresses, form, beats=True) for form in FORMS]
    for peer in victims:
        assert peer.greet("", token=shop.forge(jti="stolen", exp=exp))["ok"]
    # The same id in another app is another token.
    with connect(node.addresses, "tcp", beats=True) as other:
        assert other.greet("", token=bank.forge(jti="stolen", exp=exp))["ok"]
        revocation = msgspec.json.encode({"jti": "stolen", "exp": exp})
        assert post(node, "/v1/tokens/revoke", shop.forge(jti="x"), revocation)[0] == 403
        status, body = post(node, "/v1/tokens/revoke", admin, revocation)
        assert (status, msgspec.json.decode(body)["closed"]) == (200, len(FORMS))
        for peer in victims:
            with peer:
                assert peer.hear()["code"] == 4003
        assert other.ask(Presence(id=2, to="user:alice"))["online"]
    with connect(node.addresses, "tcp") as peer:
        assert "revoked" in peer.greet("", token=shop.forge(jti="stolen", exp=exp))["reason"]


def test_http_wants_a_token_as_well(node: NodeProcess, apps: tuple[App, App]) -> None:
    body = b'{"to":"topic:a","data":1}'
    assert post(node, "/v1/publish", None, body)[0] == 401
    assert post(node, "/v1/publish", "wrong", body)[0] == 401
    assert post(node, "/v1/publish", apps[0].forge(), body)[0] == 403
    assert post(node, "/v1/publish", apps[0].forge(publish=["topic:a"]), body)[0] == 200


def test_sdk_gives_up_on_a_wrong_token(node: NodeProcess, apps: tuple[App, App]) -> None:
    for edge in ("websocket", "tcp"):
        with pytest.raises(Forbidden):
            chappe.blocking.connect(node.addresses[edge], token=apps[0].forge(secret="x" * 64))


def post(node: NodeProcess, path: str, token: str | None, body: bytes) -> tuple[int, bytes]:
    """A request with a bearer token."""
    api = Api(node)
    try:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return api.request("POST", path, body, headers)
    finally:
        api.close()
