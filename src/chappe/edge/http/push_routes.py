"""The routes of push, by role: web answers devices, admin app servers and administrators (P1)."""

from __future__ import annotations

from fastapi import FastAPI

from chappe.edge.http.push_access import PushAccess
from chappe.edge.http.push_apps import PushAppRoutes
from chappe.edge.http.push_clients import PushClientRoutes
from chappe.edge.http.push_devices import PushDeviceRoutes
from chappe.edge.http.push_sending import PushSendingRoutes
from chappe.edge.http.push_subscriptions import PushSubscriptionRoutes
from chappe.edge.http.push_topics import PushTopicRoutes


def include_push(app: FastAPI, access: PushAccess, *, web: bool = True, admin: bool = True) -> None:
    """Let an API answer those whom these roles answer."""
    if web:
        for answering in (PushDeviceRoutes, PushSubscriptionRoutes):
            app.include_router(answering(access).router())
    if admin:
        for routes in (PushAppRoutes, PushClientRoutes, PushTopicRoutes, PushSendingRoutes):
            app.include_router(routes(access).router())
