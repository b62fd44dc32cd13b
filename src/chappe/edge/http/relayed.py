"""Requests that another node sent here, answered in parts as if they had come to this edge."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Scope

from chappe.edge.http.relay import Parts, Relayed, RelayedPart

log = structlog.get_logger()

# How much of an answer waits for a link that takes no more, and what goes over it at once.
_WAITING_MAX = 4
_PART_BYTES_MAX = 64 * 1024


class RelayedConnection:
    """What stands for a connection: the parts that were made and not yet taken."""

    def __init__(self) -> None:
        self.parts: deque[RelayedPart] = deque()
        self.ended = False
        self.arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def stuck(self) -> bool:
        """Whether nobody takes what was made."""
        return not self._room.is_set()

    def abort(self) -> None:
        """Make no more of the answer."""
        if self._task is not None:
            self._task.cancel()

    def start(self, app: ASGIApp, request: Relayed) -> asyncio.Task[None]:
        """Begin to make the answer."""
        self._task = asyncio.create_task(self._answer(app, request))
        return self._task

    def take(self) -> RelayedPart:
        """The oldest part."""
        part = self.parts.popleft()
        self._room.set()
        return part

    async def _answer(self, app: ASGIApp, request: Relayed) -> None:
        body: list[bytes] = [request.body]

        async def receive() -> Message:
            if body:
                return {"type": "http.request", "body": body.pop(), "more_body": False}
            # Whoever asks again waits for the peer to leave, which ends the task.
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        try:
            await app(self._scope(request), receive, self._send)
        finally:
            self.ended = True
            self.arrived.set()

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
            await self._put(RelayedPart(message["status"], headers))
            return
        data: bytes = message.get("body", b"")
        for start in range(0, len(data), _PART_BYTES_MAX):
            await self._put(RelayedPart(body=data[start : start + _PART_BYTES_MAX]))

    async def _put(self, part: RelayedPart) -> None:
        self.parts.append(part)
        self.arrived.set()
        if len(self.parts) >= _WAITING_MAX:
            self._room.clear()
            await self._room.wait()

    def _scope(self, request: Relayed) -> Scope:
        headers: list[Any] = [(n.encode(), v.encode()) for n, v in request.headers.items()]
        headers.append((b"content-length", b"%d" % len(request.body)))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": request.path.encode(),
            "query_string": request.query,
            "root_path": "",
            "headers": headers,
            "client": (request.peer, 0),
            "server": None,
            "state": {"connection": self, "relayed": True},
        }


async def serve_relayed(app: ASGIApp, request: Relayed) -> Parts:
    """Answer another node's request; closing the generator ends it, as a peer that leaves would."""
    connection = RelayedConnection()
    task = connection.start(app, request)
    try:
        while True:
            await connection.arrived.wait()
            while connection.parts:
                yield connection.take()
            if connection.ended:
                return
            connection.arrived.clear()
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("http.relayed", error=repr(error))
