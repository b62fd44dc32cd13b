"""Serving: an app on uvicorn's protocol, in the node's own event loop.

uvicorn's server is not used: it would listen, wait for signals and exit by itself. Connections come
from the node's acceptor like those of every other edge, and end with the node.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import ServerState

from chappe.clock import Clock
from chappe.edge.http.connection import Connection
from chappe.edge.http.options import HttpOptions


class Serving:
    """Serves one app to the connections that are accepted for it."""

    def __init__(self, app: ASGIApp, options: HttpOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._since = clock.monotonic()
        self._state = ServerState()
        self._timer: asyncio.TimerHandle | None = None
        self._started = False
        self._config = _config(app, options)
        self._config.load()
        self._lifespan = self._config.lifespan_class(self._config)

    def protocol(self) -> Connection:
        """The protocol of one connection."""
        return Connection(self._config, self._state, self._options)

    async def start(self) -> None:
        """Take requests."""
        await self._lifespan.startup()
        self._tell_the_date()
        self._started = True

    async def stop(self) -> None:
        """Close idle connections, let running requests finish within a bound, drop the rest."""
        self._started = False
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=self._options.stop_timeout_s)
        for connection in list(self._state.connections):
            connection.transport.abort()
        if self._timer is not None:
            self._timer.cancel()
        await self._lifespan.shutdown()

    def _uptime_s(self) -> float:
        return self._clock.monotonic() - self._since

    def _counts(self) -> dict[str, int]:
        return {
            "connections": len(self._state.connections),
            "requests": self._state.total_requests,
        }

    def _tell_the_date(self) -> None:
        date = formatdate(self._clock.wall_ms() / 1000, usegmt=True)
        self._state.default_headers = [(b"date", date.encode())]
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tell_the_date)


def _config(app: ASGIApp, options: HttpOptions) -> Config:
    return Config(
        app,
        loop="none",
        http=Connection,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        # Strangers' mistakes are counted, not logged; ours are logged.
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=options.keep_alive_s,
        h11_max_incomplete_event_size=options.header_bytes_max,
    )
