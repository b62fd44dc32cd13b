"""Development access: no token needed, and a token that is given is held to."""

from __future__ import annotations

import pytest

from chappe.access.dev import DEV_APP, DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.errors import BadRequest, Forbidden
from chappe.hub.grant import EVERYTHING
from chappe.wire.ops import Hello
from tests.hub.rig import ManualClock


@pytest.fixture
def dev() -> DevAuthenticator:
    return DevAuthenticator(TokenAuthenticator([], ManualClock()))


def test_anybody_may_be_anybody_in_any_app(dev: DevAuthenticator) -> None:
    grant = dev.authenticate(Hello(as_="user:alice"))
    assert (grant.app, grant.address, grant.expires_at) == (DEV_APP, "user:alice", None)
    assert grant.send is grant.publish is grant.subscribe is grant.administer is EVERYTHING
    assert grant.provide is EVERYTHING
    assert grant.manage is EVERYTHING
    assert dev.authenticate(Hello(as_="user:alice", app="shop")).app == "shop"


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (Hello(), "as"),
        (Hello(as_="alice"), "as"),
        (Hello(as_="user:"), "as"),
        (Hello(as_="user:*"), "as"),
        (Hello(as_="topic:news"), "a user says hello"),
        (Hello(as_="user:a", app="No App"), "app"),
        (Hello(as_="user:a", app="a" * 65), "app"),
    ],
)
def test_a_hello_that_names_nobody_is_wrong(dev: DevAuthenticator, hello: Hello, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        dev.authenticate(hello)


def test_a_token_that_is_given_is_held_to(dev: DevAuthenticator) -> None:
    with pytest.raises(Forbidden, match="token"):
        dev.authenticate(Hello(as_="user:alice", token="nonsense"))
