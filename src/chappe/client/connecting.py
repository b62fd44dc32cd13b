"""Connecting: from a URL to a client."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Generator, Sequence
from random import Random, SystemRandom
from types import TracebackType
from urllib.parse import SplitResult, urlsplit

from chappe.client.anydial import AnyDial
from chappe.client.client import Client
from chappe.client.connection import OnNotice
from chappe.client.identity import Token
from chappe.client.link import Dial
from chappe.client.options import ClientOptions
from chappe.client.stream import StreamDial
from chappe.client.websocket import WebSocketDial
from chappe.errors import ConfigError

WEBSOCKET_PORT = 7400
TCP_PORT = 7402
_PLAIN = frozenset({"ws", "tcp"})
_SECURE = frozenset({"wss", "tls"})


class Connecting:
    """A client about to connect: await it, or enter it with `async with`."""

    def __init__(
        self,
        url: str | Sequence[str],
        as_: str,
        token: Token,
        app: str | None,
        tls: ssl.SSLContext | None,
        options: ClientOptions,
        on_notice: OnNotice | None,
        rng: Random | None,
    ) -> None:
        self._parts = _split_all(url, tls)
        self._as = as_
        self._token = token
        self._app = app
        self._tls = tls
        self._options = options
        self._on_notice = on_notice
        self._rng = rng
        self._client: Client | None = None

    def __await__(self) -> Generator[object, None, Client]:
        return self._open().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def _open(self) -> Client:
        # Masks come from it too, and RFC 6455 wants those unpredictable.
        rng = self._rng if self._rng is not None else SystemRandom()
        dials = [
            dial_of(parts, tls=self._tls, options=self._options, rng=rng) for parts in self._parts
        ]
        client = Client(
            dials[0] if len(dials) == 1 else AnyDial(dials, rng),
            rng=rng,
            as_=self._as,
            token=self._token,
            app=self._app,
            options=self._options,
            on_notice=self._on_notice,
        )
        return await client.open()


def connect(
    url: str | Sequence[str],
    *,
    as_: str = "",
    token: Token = None,
    app: str | None = None,
    tls: ssl.SSLContext | None = None,
    options: ClientOptions | None = None,
    on_notice: OnNotice | None = None,
    rng: Random | None = None,
) -> Connecting:
    """Connect to a hub: `client = await connect(...)`, or `async with connect(...) as client:`.

    `url` is `ws://host:port/ws`, `wss://...`, `tcp://host:port` or `tls://host:port`, or a list of
    such, one for each node of a cluster: when one is gone, the client goes to the next. `token` is
    a text, or a function (plain or async) that gives a fresh one at each connect. `on_notice` is
    called with each `Notice`. Raises ConfigError for a URL that makes no sense; awaiting raises as
    `Client.open` does.
    """
    return Connecting(url, as_, token, app, tls, options or ClientOptions(), on_notice, rng)


def dial_of(
    parts: SplitResult, *, tls: ssl.SSLContext | None, options: ClientOptions, rng: Random
) -> Dial:
    """The dial for a URL."""
    secure = parts.scheme in _SECURE
    if parts.scheme in ("ws", "wss"):
        port = parts.port or WEBSOCKET_PORT
        netloc = parts.netloc if parts.port else f"{parts.netloc}:{port}"
        return WebSocketDial(
            parts._replace(netloc=netloc, path=parts.path or "/ws").geturl(),
            form=options.form,
            tls=tls,
            message_bytes_max=options.received_bytes_max,
            timeout_s=options.connect_timeout_s,
            rng=rng,
        )
    create = functools.partial(
        asyncio.get_running_loop().create_connection,
        host=parts.hostname,
        port=parts.port or TCP_PORT,
        ssl=(tls or ssl.create_default_context()) if secure else None,
    )
    return StreamDial(create, options.received_bytes_max)


def _split_all(url: str | Sequence[str], tls: ssl.SSLContext | None) -> list[SplitResult]:
    parts = [_split(one, tls) for one in ([url] if isinstance(url, str) else url)]
    if not parts:
        raise ConfigError("url: an empty list")
    if len({part.scheme in ("ws", "wss") for part in parts}) > 1:
        raise ConfigError("url: either WebSocket or TCP, not both in one list")
    return parts


def _split(url: str, tls: ssl.SSLContext | None) -> SplitResult:
    """Take a URL apart; raises ConfigError, quoting nothing that may hold a secret."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"url: {error}") from None
    if parts.scheme not in _PLAIN | _SECURE:
        raise ConfigError("url: begins with ws://, wss://, tcp:// or tls://")
    if not host:
        raise ConfigError("url: names no host")
    if parts.username or parts.password:
        raise ConfigError("url: holds a user or password; pass a token instead")
    if tls is not None and parts.scheme in _PLAIN:
        raise ConfigError(f"tls: given, but {parts.scheme}:// does not use it")
    return parts
