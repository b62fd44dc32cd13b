"""A hub driven through its own seam: sinks that keep what is written to them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.endpoints.application import Application
from chappe.events.counting import CountingRecorder
from chappe.events.recorder import Recorder
from chappe.hub.grant import Authenticator
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.hub.session import Session
from chappe.ids import EPOCH_MS, Snowflake
from chappe.rooms.options import RoomsOptions
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.limits import Limits
from chappe.wire.ops import Delivery, Hello, Op, Publish, Reply, Send
from chappe.wire.packed import Splitter, read_hub_ops
from chappe.wire.text import decode_hub_op


class ManualClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.now_s * 1000)

    def wall_us(self) -> int:
        return self.wall_ms() * 1000

    def monotonic(self) -> float:
        return self.now_s


class KeptSink:
    """An edge's end that keeps all it is told."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.pings = 0
        self.closed: tuple[int, str] | None = None
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def ping(self) -> None:
        self.pings += 1

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)

    def abort(self) -> None:
        self.aborted = True


class Endpoint:
    """One session, and what its peer has been told."""

    def __init__(self, hub: Hub, sink: KeptSink, session: Session) -> None:
        self._hub = hub
        self.sink = sink
        self.session = session
        self._read = 0

    def say(self, *ops: Op) -> None:
        """Hand over ops as one read would bring them."""
        self._hub.receive_all(self.session, list(ops))

    def heard(self) -> list[Any]:
        """The ops written since the last call."""
        data = b"".join(self.sink.writes[self._read :])
        self._read = len(self.sink.writes)
        if self.session.encoding is JSON_ITEMS:
            items = msgspec.json.decode(b"[" + data.removesuffix(b",") + b"]", type=list[_RAW])
            return [decode_hub_op(bytes(item)) for item in items]
        arrays = Splitter(1 << 30).feed(data)
        return [op for array in arrays for op in read_hub_ops(array)]

    def got(self) -> list[Any]:
        """The payloads of the messages written since the last call."""
        return [payload_of(op) for op in self.heard() if isinstance(op, Delivery)]

    def reply(self) -> Reply:
        """The one reply among what was written since the last call."""
        (reply,) = (op for op in self.heard() if isinstance(op, Reply))
        return reply


_RAW = msgspec.Raw


class Rig:
    """A hub on the running loop, with a clock that tests move."""

    def __init__(
        self,
        *,
        options: HubOptions | None = None,
        limits: Limits | None = None,
        recorder: Recorder | None = None,
        authenticator: Authenticator | None = None,
        rooms: RoomsOptions | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.recorder = recorder or CountingRecorder()
        serial = itertools.count(1)
        self.hub = Hub(
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            ids=Snowflake(0, self.clock.wall_ms),
            entropy=lambda size: next(serial).to_bytes(size, "big"),
            authenticator=authenticator or DevAuthenticator(TokenAuthenticator([], self.clock)),
            recorder=self.recorder,
            options=options or HubOptions(),
            limits=limits or Limits(),
        )
        self.application = Application.embedded(self.hub, asyncio.get_running_loop(), rooms)

    def stranger(self, encoding: Encoding = STREAM) -> Endpoint:
        """A connection that has not said hello."""
        sink = KeptSink()
        return Endpoint(self.hub, sink, self.hub.open("rig", encoding, sink, "here"))

    def endpoint(
        self, name: str, encoding: Encoding = STREAM, *, app: str | None = None
    ) -> Endpoint:
        """A user that has said hello."""
        endpoint = self.stranger(encoding)
        self.hub.admit(endpoint.session, Hello(as_=f"user:{name}", app=app))
        return endpoint

    async def tick(self) -> None:
        """Let the tick that is under way end."""
        while self.hub.ticking:
            await asyncio.sleep(0)


def send(to: str | list[str], data: Any, id: int | None = None) -> Send:
    """A send as it comes in JSON text."""
    return Send(id=id, to=to, data=msgspec.Raw(msgspec.json.encode(data)))


def publish(to: str, data: Any, id: int | None = None) -> Publish:
    """A publish as it comes in JSON text."""
    return Publish(id=id, to=to, data=msgspec.Raw(msgspec.json.encode(data)))


def payload_of(delivery: Delivery) -> Any:
    """The JSON value in a delivery of either form."""
    return msgspec.json.decode(bytes(delivery.data))  # type: ignore[arg-type]
