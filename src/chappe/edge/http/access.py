"""Access over HTTP: a bearer token on each request."""

from __future__ import annotations

from fastapi import Request

from chappe.edge.http.failure import Unauthorized
from chappe.errors import Forbidden
from chappe.hub.grant import EVERYTHING, Authenticator, Grant
from chappe.wire.ops import Hello

# Who asks where nobody has to say who they are.
ANYBODY = "user:http"


def hello_of(request: Request, as_: str, app: str | None, token: str | None = None) -> Hello:
    """What the sender of a request says about itself; raises Unauthorized for another scheme."""
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("authorization: a bearer token is meant here")
    return Hello(as_=as_ or ("" if token else ANYBODY), token=token or None, app=app)


class Administration:
    """Lets those in whose token administers everything in its app."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def grant(self, request: Request, as_: str, app: str | None) -> Grant:
        """Who administers; raises Unauthorized, Forbidden or BadRequest."""
        try:
            grant = self._authenticator.authenticate(hello_of(request, as_, app))
        except Forbidden as error:
            raise Unauthorized(error.reason) from None
        if grant.administer is not EVERYTHING:
            raise Forbidden("token: this identity does not administer")
        return grant
