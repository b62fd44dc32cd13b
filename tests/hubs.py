"""A hub with the application layer on it, as tests need one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.clock import Clock
from chappe.endpoints.application import Application
from chappe.events.counting import CountingRecorder
from chappe.events.recorder import Recorder
from chappe.hub.grant import Authenticator
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.ids import Snowflake
from chappe.wire.limits import Limits


def make_hub(
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    *,
    entropy: Callable[[int], bytes] = os.urandom,
    authenticator: Authenticator | None = None,
    recorder: Recorder | None = None,
    options: HubOptions | None = None,
    limits: Limits | None = None,
) -> Hub:
    """A hub that serves every op; unless told otherwise it lets everybody in."""
    hub = Hub(
        loop=loop,
        clock=clock,
        ids=Snowflake(0, clock.wall_ms),
        entropy=entropy,
        authenticator=authenticator or DevAuthenticator(TokenAuthenticator([], clock)),
        recorder=recorder or CountingRecorder(),
        options=options or HubOptions(),
        limits=limits or Limits(),
    )
    Application.embedded(hub, loop)
    return hub
