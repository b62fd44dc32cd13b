"""Access to push: app servers sign, administrators have a token, devices show theirs (P10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fastapi import Request

from chappe.edge.http.access import Administration
from chappe.edge.http.exchange import read
from chappe.edge.http.failure import Unauthorized
from chappe.errors import Forbidden, Unreachable
from chappe.push.admin.desk import PushDesk
from chappe.push.app import PushApp
from chappe.push.signing import APP, SIGNATURE, read_signature

# Asked for each time: a node may take part in push later than it answers requests.
Desk = Callable[[], PushDesk | None]

BODY_BYTES_MAX = 64 * 1024


def no_push() -> PushDesk | None:
    """Where nobody takes part in push."""
    return None


class Asked(NamedTuple):
    """A request that was let in: for which app, and what it says."""

    desk: PushDesk
    app: PushApp
    body: bytes


class PushAccess:
    """Finds out who asks."""

    def __init__(self, administration: Administration, desk: Desk) -> None:
        self._administration = administration
        self._desk = desk

    def desk(self) -> PushDesk:
        """What answers here; raises Unreachable."""
        desk = self._desk()
        if desk is None:
            raise Unreachable("push: this node takes no part in it")
        return desk

    async def ask(self, request: Request, bytes_max: int = BODY_BYTES_MAX) -> Asked:
        """Let in an app's server that signs, or an administrator who names the app.

        Raises BadSignature, Unauthorized, Forbidden, Unreachable, TooLarge.
        """
        desk = self.desk()
        if SIGNATURE not in request.headers and APP in request.headers:
            app = await self._for_administrator(desk, request)
            return Asked(desk, app, await read(request, bytes_max))
        # Who it is said to come from, and when, before a body is read.
        signature, app = await desk.gate.announced(request.headers)
        body = await read(request, bytes_max)
        await desk.gate.admit(signature, app, request.method, _target(request), body)
        return Asked(desk, app, body)

    def scope(self, request: Request, as_: str, app: str | None) -> tuple[PushDesk, str | None]:
        """What an administrator may administer: the app of a name, or, None, all of them."""
        desk, grant = self.desk(), self._administration.grant(request, as_, app)
        return desk, None if grant.app in desk.options.operators else grant.app

    async def administer(
        self, request: Request, as_: str, app: str | None, key: str
    ) -> tuple[PushDesk, PushApp]:
        """The app that an administrator asks about; raises Unreachable for another's."""
        desk, name = self.scope(request, as_, app)
        found = await desk.apps.find(key)
        if name is not None and found.name != name:
            raise Unreachable("app: no app has this key")
        return desk, found

    async def _for_administrator(self, desk: PushDesk, request: Request) -> PushApp:
        try:
            _, app = await self.administer(request, "", None, request.headers[APP])
        except Unauthorized:
            if "authorization" not in request.headers:
                # Nobody who has a token: an app's server that forgot to sign.
                read_signature(request.headers)
            raise
        if not app.enabled:
            raise Forbidden("app: it is switched off")
        return app


def _target(request: Request) -> str:
    """The path with its query, as they came over the wire."""
    path: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    return (path + b"?" + query if query else path).decode("latin-1")
