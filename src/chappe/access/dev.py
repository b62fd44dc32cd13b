"""Development access: whoever is on this machine is who they say they are."""

from __future__ import annotations

from chappe.access.token import TokenAuthenticator
from chappe.address import check_app, parse_address
from chappe.errors import BadRequest
from chappe.hub.grant import EVERYTHING, Grant
from chappe.wire.ops import Hello

DEV_APP = "default"


class DevAuthenticator:
    """Grants everything to a hello without a token; one with a token is held to it."""

    def __init__(self, tokens: TokenAuthenticator) -> None:
        self._tokens = tokens

    def authenticate(self, hello: Hello) -> Grant:
        if hello.token:
            return self._tokens.authenticate(hello)
        address = parse_address(hello.as_, "as")
        if address.kind != "user":
            raise BadRequest(f"as: a user says hello, not a {address.kind}")
        return Grant(
            app=check_app(hello.app or DEV_APP),
            address=str(address),
            send=EVERYTHING,
            publish=EVERYTHING,
            subscribe=EVERYTHING,
            provide=EVERYTHING,
            manage=EVERYTHING,
            administer=EVERYTHING,
        )
