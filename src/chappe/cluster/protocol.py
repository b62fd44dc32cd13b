"""What stands between a transport and a link: picows, which shakes hands and reads frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from picows import WSUpgradeRequest
from picows.picows import WSAutoPingStrategy, WSProtocol  # type: ignore[attr-defined]

from chappe.cluster.link import Link

PATH = "/link"
# The smallest picows takes; a busy link's buffer grows by itself.
_READ_BUFFER_BYTES = 2048


class ParserWatch:
    """Stands where picows wants a logger: hears that its parser gave up, and logs nothing."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[], None]) -> None:
        self._failed = failed

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802, the name that loggers have
        return False

    def error(self, *_: object) -> None:
        self._failed()

    def ignore(self, *_: object, **__: object) -> None:
        """Not worth a line."""

    log = debug = info = warning = exception = ignore


class LinkProtocol(WSProtocol):  # type: ignore[misc]
    """The protocol of one link; `host` is whom a dialler calls, None for an acceptor."""

    def __init__(
        self, link: Link, host: str | None, frame_bytes_max: int, timeout_s: float
    ) -> None:
        self.link = link
        super().__init__(
            host,
            PATH if host is not None else None,
            host is not None,  # is_client_side
            (lambda: link) if host is not None else self._answer,
            ParserWatch(link.parser_failed),
            True,  # disconnect_on_exception
            timeout_s,
            False,  # enable_auto_ping: links beat by themselves
            20,
            20,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,  # enable_auto_pong: nobody sends pings of WebSocket's own
            frame_bytes_max,
            None,  # extra_headers
            _READ_BUFFER_BYTES,
        )

    def _answer(self, request: WSUpgradeRequest) -> Link | None:
        """The link, for another node; for anybody else there is nothing here."""
        headers = request.headers
        another_node = (
            request.path == PATH.encode()
            and headers.get("Upgrade", "").lower() == "websocket"
            and headers.get("Sec-WebSocket-Version") == "13"
            and "Origin" not in headers
        )
        return self.link if another_node else None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.link.connected(transport)

    def buffer_updated(self, size: int) -> None:
        if self.link.before_read(size):
            super().buffer_updated(size)
            self.link.after_read()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.link.disconnected()

    async def opened(self) -> None:
        """Wait until the WebSocket handshake is over; raises what picows raises."""
        await self.wait_until_handshake_complete()
