"""A comet and a web, scripted, made of nothing but the wire: what a device is held against."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from chappe.device import Device, DeviceOptions, Grant, Note
from chappe.errors import RequestError
from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Command,
    Error,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    MessageAck,
    Ok,
    Response,
    Splitter,
    Subscribe,
    TopicList,
    Unsubscribe,
    decode_command,
    encode_response,
    message_frame,
    message_head,
    message_list_frames,
    message_struct,
)
from chappe.wire.pushcipher import CometAgreement, Sealing

CLIENT = "c010000065f2c3d4"
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
Letter = tuple[int, str, bytes]
FAST = DeviceOptions(backoff_first_s=0.01, backoff_max_s=0.05, request_timeout_s=5)


class Line(asyncio.Protocol):
    """One connection at the comet."""

    def __init__(self, comet: Comet) -> None:
        self.comet = comet
        self.splitter = Splitter()
        self.agreement: CometAgreement | None = None
        self.sealing: Sealing | None = None
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.comet.lines.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        for frame in self.splitter.feed(data):
            self.comet.take(self, decode_command(frame))

    def say(self, response: Response) -> None:
        self.transport.write(encode_response(response))

    def end(self, code: int, reason: str = "") -> None:
        self.say(Error(code, reason))
        self.transport.close()

    def sealed(self, letter: Letter) -> bytes:
        assert self.sealing is not None
        type_, id_, content = letter
        head = message_head(type_, id_, "j1", NOW_MS)
        return message_struct(head, self.sealing.seal(head, content))

    def push(self, *letters: Letter) -> None:
        self.transport.write(b"".join(message_frame(self.sealed(x)) for x in letters))


class Comet:
    """Takes logins with the token of the moment, keeps what is not acknowledged, counts."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.identity = Ed25519PrivateKey.generate()
        self.token = "token-0"
        self.waiting: dict[str, Letter] = {}
        self.topics: dict[str, None] = {}
        self.heard: list[Command] = []
        self.acked: list[str] = []
        self.lines: list[Line] = []
        # What the next logins, and the next other commands, are answered.
        self.refusals: deque[Error] = deque()
        self.errors: deque[Error] = deque()
        self.answering = True
        self.changed = asyncio.Event()
        self._tls = tls

    async def __aenter__(self) -> Comet:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Line(self), "127.0.0.1", 0, ssl=self._tls)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for line in self.lines:
            line.transport.abort()
            await line.lost

    @property
    def address(self) -> str:
        return f"{'tls' if self._tls else 'tcp'}://127.0.0.1:{self.port}"

    @property
    def public(self) -> bytes:
        return self.identity.public_key().public_bytes_raw()

    @property
    def live(self) -> Line:
        return self.lines[-1]

    @property
    def logins(self) -> int:
        return sum(isinstance(command, Auth) for command in self.heard)

    def take(self, line: Line, command: Command) -> None:
        self.heard.append(command)
        self.changed.set()
        if not self.answering:
            return
        if isinstance(command, Auth):
            self._login(line, command)
        elif self.errors:
            line.say(self.errors.popleft())
        else:
            self._answer(line, command)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not true():
            self.changed.clear()
            await self.changed.wait()

    def _login(self, line: Line, auth: Auth) -> None:
        if self.refusals:
            error = self.refusals.popleft()
            line.end(error.code, error.reason)
        elif auth.token != self.token:
            line.end(0, "token: expired")
        else:
            line.agreement = CometAgreement(auth.client_id, os.urandom(32), self.identity)
            line.say(AuthSuccess(line.agreement.encrypt_key))

    def _answer(self, line: Line, command: Command) -> None:
        match command:
            case ExchangeKey(secret_key):
                assert line.agreement is not None
                line.sealing = line.agreement.agree(secret_key)
            case GetMessageList():
                structs = [line.sealed(letter) for letter in self.waiting.values()]
                line.transport.write(b"".join(message_list_frames(structs)))
                return
            case GetTopicList():
                for topic in self.topics:
                    line.say(TopicList((topic,)))
                line.say(TopicList(()))
                return
            case Subscribe(topics):
                self.topics |= dict.fromkeys(topics)
            case Unsubscribe(topics):
                for topic in topics:
                    self.topics.pop(topic, None)
            case MessageAck(ids):
                self.acked += ids
                for id_ in ids:
                    self.waiting.pop(id_, None)
        line.say(Ok())


class ScriptedWeb:
    """Gives grants for a comet; counts."""

    def __init__(self, comet: Comet) -> None:
        self.comet = comet
        self.identity = comet.public
        self.address: str | None = None
        self.expires_ms = NOW_MS + 7 * DAY_MS
        self.asked = 0
        self.clicks: list[tuple[str, str, str]] = []
        self.refusals: deque[RequestError] = deque()

    async def grant(self, app: str, device: str) -> Grant:
        self._refuse()
        self.asked += 1
        self.comet.token = f"token-{self.asked}"
        return Grant(
            client=CLIENT,
            token=self.comet.token,
            comet=self.address or self.comet.address,
            identity=self.identity,
            expires_ms=self.expires_ms,
        )

    async def click(self, client: str, token: str, notes: Sequence[Note]) -> None:
        self._refuse()
        self.clicks += [(client, token, note.id) for note in notes]

    def _refuse(self) -> None:
        if self.refusals:
            raise self.refusals.popleft()


class StillClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.now_ms

    def wall_us(self) -> int:
        return self.now_ms * 1000

    def monotonic(self) -> float:
        return self.now_ms / 1000


def device_of(web: ScriptedWeb, **more: object) -> Device:
    """A device that comes back at once, on a clock that stands."""
    settings = {"app": "shop", "device": "d1", "web": web, "options": FAST, "clock": StillClock()}
    return Device(**(settings | more))  # type: ignore[arg-type]
