"""The HTTP edge of a node that is web or admin of push, and has no hub."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp

from chappe.edge.http.access import Administration
from chappe.edge.http.api import finish_api, make_api
from chappe.edge.http.health import HealthRoutes
from chappe.edge.http.probes import Probes
from chappe.edge.http.push_access import Desk, PushAccess
from chappe.edge.http.push_routes import include_push
from chappe.edge.http.watch import WatchEdge
from chappe.events.recorder import Recorder
from chappe.hub.grant import Authenticator


class PushEdge(WatchEdge):
    """The part of the API that is about push, for those whom the node's roles answer."""

    def __init__(
        self, authenticator: Authenticator, desk: Desk, *, web: bool, admin: bool, **watch: Any
    ) -> None:
        self._access = PushAccess(Administration(authenticator), desk)
        self._web, self._admin = web, admin
        super().__init__(**watch)

    def _make_app(self, probes: Probes, recorder: Recorder) -> ASGIApp:
        app = make_api()
        app.include_router(HealthRoutes(probes).router())
        include_push(app, self._access, web=self._web, admin=self._admin)
        finish_api(app, recorder)
        return app
