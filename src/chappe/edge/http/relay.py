"""Requests about a session that is on another node: sent on there, and the answer brought back.

A session's id ends in the tag of its node: `RANDOM.TAG`. A poll, an op or a stream that a load
balancer brought to the wrong node is relayed to the right one, once, and its answer comes back in
parts: status and headers first, then the body as it grows, so that long polls and streams go the
same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Protocol

import msgspec
from fastapi import Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from chappe.edge.http.exchange import peer_of
from chappe.edge.http.options import HttpOptions
from chappe.edge.http.stream import connection_of
from chappe.errors import Overload, RequestError
from chappe.hub.hub import Hub

# What of a request's head matters to the node that answers it.
_HEADERS = ("authorization", "content-type")


class Relayed(msgspec.Struct, frozen=True, array_like=True):
    """A request, as another node is asked to answer it."""

    method: str
    path: str
    query: bytes
    headers: dict[str, str]
    body: bytes
    peer: str


class RelayedPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of an answer: the first has a status and headers, the others have more of its body."""

    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""


Parts = AsyncGenerator[RelayedPart, None]


class Elsewhere(Protocol):
    """The other nodes."""

    def named(self, tag: str) -> str | None:
        """The name of the node with that tag, if it is there."""
        ...

    def relay(self, node: str, request: Relayed) -> Parts:
        """Let a node answer a request.

        Raises Overload when it does not in time, Unreachable when it is gone. Closing the generator
        ends the request there.
        """
        ...


class Relays:
    """Finds out which requests are another node's, and has them answered there."""

    def __init__(self, hub: Hub, options: HttpOptions, elsewhere: Elsewhere | None) -> None:
        self._hub = hub
        self._elsewhere = elsewhere
        self._limit_s = options.answer_timeout_s + options.poll_wait_ms_max / 1000

    def node_of(self, request: Request, session: str) -> str | None:
        """The node that a session is on, if that is another one, and known."""
        _, _, tag = session.partition(".")
        if self._elsewhere is None or not tag or tag == self._hub.tag:
            return None
        # Relayed once is enough: two nodes that took each other for the right one would never end.
        if "relayed" in request.scope["state"]:
            return None
        return self._elsewhere.named(tag)

    async def forward(self, node: str, request: Request, body: bytes = b"") -> Response:
        """Have a node answer a request; raises Overload when it does not in time."""
        assert self._elsewhere is not None
        scope = request.scope
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        relayed = Relayed(
            scope["method"], scope["path"], scope["query_string"], headers, body, peer_of(request)
        )
        parts = self._elsewhere.relay(node, relayed)
        try:
            async with asyncio.timeout(self._limit_s):
                first = await anext(parts)
        except (TimeoutError, StopAsyncIteration):
            await parts.aclose()
            raise Overload("the session's node did not answer", outcome_unknown=True) from None
        except BaseException:
            await parts.aclose()
            raise
        return _RelayedResponse(first, parts)


class _RelayedResponse(StreamingResponse):
    """An answer that goes on for as long as the other node has more of it."""

    def __init__(self, first: RelayedPart, parts: Parts) -> None:
        super().__init__(_bodies(first, parts), first.status, first.headers)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._parts):
            try:
                await super().__call__(scope, receive, send)
            except RequestError:
                # Half an answer is out: cut off, it cannot be taken for a whole one.
                connection_of(scope).abort()


async def _bodies(first: RelayedPart, parts: Parts) -> AsyncIterator[bytes]:
    if first.body:
        yield first.body
    async for part in parts:
        yield part.body
