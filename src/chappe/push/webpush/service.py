"""The way to push services: one POST, bounded in time and in what is read of its answer.

Who subscribes names the address. So what a name leads to is looked at where the connection is made,
and that very address is connected to: a name that leads elsewhere the next time it is asked for
leads nowhere. Redirections are not followed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from chappe.errors import ChappeError
from chappe.push.webpush.address import is_public
from chappe.push.webpush.options import WebPushOptions

if TYPE_CHECKING:
    import httpcore

# What is read of an answer so that its connection can be used again; more is cut off.
ANSWER_BYTES_MAX = 16 * 1024
_KEPT_S = 60.0
# Of a name that has more than one, so many are tried.
_ADDRESSES_MAX = 4
_OWN_HEADERS = (("user-agent", "chappe"), ("accept-encoding", "identity"))

# The addresses of a name; raises OSError.
Resolve = Callable[[str, int], Awaitable[list[str]]]


class Unanswered(ChappeError):
    """No answer came, in time or at all; it may next time."""


class Blocked(ChappeError):
    """The endpoint is at an address that nothing is sent to."""


class Answer(NamedTuple):
    """What a push service said: a status, and when to come again."""

    status: int
    retry_after_s: float | None = None


class Posting(Protocol):
    """Hands messages over."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Make one attempt; raises Unanswered or Blocked."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as this machine's resolver says."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class PushServices:
    """Connections to push services, used again where they can be. Made on the running loop."""

    def __init__(self, options: WebPushOptions, resolve: Resolve = resolve) -> None:
        # Who sends nothing to browsers does not load it.
        import httpcore  # noqa: PLC0415

        # Its lines tell headers.
        logging.getLogger("httpcore").setLevel(logging.WARNING)
        self._timeout_s = options.timeout_s
        self._failures = (
            TimeoutError,
            OSError,
            httpcore.TimeoutException,
            httpcore.NetworkError,
            httpcore.ProtocolError,
        )
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_connections=options.concurrency_max,
            max_keepalive_connections=options.concurrency_max,
            keepalive_expiry=_KEPT_S,
            network_backend=_guarded(resolve, options.allow_private),
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Make one attempt; raises Unanswered or Blocked."""
        named: list[tuple[bytes | str, bytes | str]] = [*headers.items(), *_OWN_HEADERS]
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._pool.stream("POST", url, headers=named, content=body) as response,
            ):
                await _skim(response)
        except self._failures as error:
            raise Unanswered(type(error).__name__) from None
        return Answer(response.status, _retry_after(response.headers))

    async def close(self) -> None:
        """Close its connections."""
        await self._pool.aclose()


async def _skim(response: httpcore.Response) -> None:
    size = 0
    async for chunk in response.aiter_stream():
        size += len(chunk)
        if size > ANSWER_BYTES_MAX:
            break


def _retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float | None:
    """In seconds; as a date, which push services do not use, it is not read."""
    for name, value in headers:
        if name.lower() == b"retry-after" and value.isdigit() and len(value) < 10:
            return float(value)
    return None


def _guarded(resolve: Resolve, allow_private: bool) -> httpcore.AsyncNetworkBackend:
    import httpcore  # noqa: PLC0415

    class Guarded(httpcore.AsyncNetworkBackend):
        """Connects to public addresses only."""

        def __init__(self) -> None:
            self._backend = httpcore.AnyIOBackend()

        async def connect_tcp(
            self,
            host: str,
            port: int,
            timeout: float | None = None,  # noqa: ASYNC109 - the interface is httpcore's
            local_address: str | None = None,
            socket_options: Iterable[Any] | None = None,
        ) -> httpcore.AsyncNetworkStream:
            failure: httpcore.NetworkError = httpcore.ConnectError("it has no address")
            for address in await _addresses(host, port, resolve, allow_private):
                try:
                    stream = await self._backend.connect_tcp(
                        address, port, timeout, local_address, socket_options
                    )
                except httpcore.ConnectError as error:
                    failure = error
                    continue
                if allow_private or not _is_own(stream):
                    return stream
                await stream.aclose()
                raise Blocked("endpoint: it is at this machine")
            raise failure

    return Guarded()


async def _addresses(host: str, port: int, resolve: Resolve, allow_private: bool) -> list[str]:
    """The addresses to connect to; raises Blocked if any of them is not public."""
    addresses = list(dict.fromkeys(await resolve(host, port)))
    if not allow_private and not all(map(is_public, addresses)):
        raise Blocked("endpoint: its host is not public")
    return addresses[:_ADDRESSES_MAX]


def _is_own(stream: httpcore.AsyncNetworkStream) -> bool:
    """Whether a connection has this machine at both ends: by a public address of its own."""
    here, there = stream.get_extra_info("client_addr"), stream.get_extra_info("server_addr")
    return here is None or there is None or here[0] == there[0]
