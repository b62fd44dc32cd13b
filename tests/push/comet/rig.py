"""Comets on a clock that is moved by hand, a store in memory, and devices that speak the wire."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

from chappe.errors import StorageError
from chappe.events.counting import CountingRecorder
from chappe.ids import PrefixedIds
from chappe.push.app import PushApp
from chappe.push.comet.comet import Comet
from chappe.push.comet.session import DeviceSession
from chappe.push.comets import CometCard, Handed
from chappe.push.identity import Identity
from chappe.push.job import Job, Tally
from chappe.push.note import Note
from chappe.push.options import CometOptions
from chappe.push.state.sqlite import SqlitePlace
from chappe.push.state.states import States
from chappe.push.state.user import TokenHolder
from chappe.push.token import token_digest
from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Command,
    Error,
    ExchangeKey,
    GetMessageList,
    Message,
    MessageAck,
    MessageList,
    MessageStruct,
    Ok,
    Response,
    Splitter,
    decode_response,
    encode_command,
)
from chappe.wire.pushcipher import DeviceAgreement, Opening
from chappe.wire.pushlink import Close, Subscribed, Withdraw
from tests.hub.rig import ManualClock

APP = "shop"
DAY_MS = 24 * 3600 * 1000
IDENTITY = Identity(bytes(range(32)))
_random = itertools.count(1)


def entropy(size: int) -> bytes:
    """Never the same twice."""
    return next(_random).to_bytes(size)


class KeptRecorder(CountingRecorder):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, dict[str, Any]]] = []

    def tell(self, kind: str, app: str, **columns: object) -> None:
        self.told.append((kind, {"app": app, **columns}))

    def tell_each(self, kind: str, app: str, count: int, each: Any, **columns: object) -> None:
        for at in range(count):
            singly = {name: values[at] for name, values in each.items()}
            self.told.append((kind, {"app": app, **columns, **singly}))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [columns for told, columns in self.told if told == kind]


class Failing:
    """A state that fails while it is told to, and counts what it is asked."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.away = False
        # Only these fail.
        self.failing: set[str] = set()
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._state, name)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            self.asked[name] += 1
            if self.away or name in self.failing:
                raise StorageError(f"{name}: away")
            return await method(*args, **kwargs)

        return ask


class KeptSink:
    """A connection's end that keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes) -> None:
        assert not self.ended, "nothing is written after the end"
        self.writes.append(data)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Device:
    """The other side of one connection."""

    def __init__(self, comet: Comet, client: str, token: str) -> None:
        self.comet = comet
        self.client = client
        self.token = token
        self.sink = KeptSink()
        self.session: DeviceSession = comet.open(self.sink)
        self.key: Opening | None = None
        self._splitter = Splitter()
        self._agreement = DeviceAgreement(client, entropy(32), IDENTITY.public)

    def feed(self, data: bytes) -> None:
        self.comet.feed(self.session, data)

    def say(self, *commands: Command) -> None:
        self.feed(b"".join(map(encode_command, commands)))

    def heard(self) -> list[Response]:
        """All since it was asked last."""
        data = b"".join(self.sink.writes)
        self.sink.writes.clear()
        return [decode_response(frame) for frame in self._splitter.feed(data)]

    def read(self) -> list[tuple[MessageStruct, bytes]]:
        """Messages since it was asked last, and their contents."""
        assert self.key is not None
        found = []
        for response in self.heard():
            some: tuple[MessageStruct, ...] = ()
            if isinstance(response, Message):
                some = (response.message,)
            elif isinstance(response, MessageList):
                some = response.messages
            found += [(each, self.key.open(each.head, each.encrypted_content)) for each in some]
        return found

    def ids(self) -> list[str]:
        return [message.id for message, _ in self.read()]

    def auth(self) -> None:
        self.say(Auth(self.client, self.token))

    def agree(self) -> None:
        """Take the comet's part of the key, and say the device's."""
        (offered,) = self.heard()
        assert isinstance(offered, AuthSuccess), offered
        self.key = self._agreement.agree(offered.encrypt_key)
        self.say(ExchangeKey(self._agreement.secret_key))

    def ack(self, *ids: str) -> None:
        self.say(MessageAck(ids))


class Rig:
    """Comets that share a store, and know each other."""

    def __init__(self, comets: int = 1, **options: Any) -> None:
        self.clock = ManualClock()
        place = SqlitePlace(None, self.clock.wall_ms)
        self.states = States(*[Failing(state) for state in place.states[:5]])
        self.recorder = KeptRecorder()
        self.ids = PrefixedIds(7, self.clock.wall_ms)
        self.comets = [self.comet(server, **options) for server in range(1, comets + 1)]
        self._made = itertools.count(1)
        self.told: list[tuple[int, Any]] = []
        self.soon: list[Any] = []

    def comet(self, server: int, **options: Any) -> Comet:
        return Comet(
            server=server,
            states=self.states,
            comets=self,
            identity=IDENTITY,
            ids=self.ids,
            clock=self.clock,
            entropy=entropy,
            recorder=self.recorder,
            soon=lambda callback: asyncio.get_running_loop().call_soon(callback),
            options=CometOptions(**options),
        )

    # What comets see of each other.

    def living(self) -> dict[int, CometCard]:
        return {c.server: CometCard(c.server, f"comet-{c.server}", "") for c in self.comets}

    def desks(self) -> list[int]:
        return list(self.living())

    async def deliver(self, server: int, note: Note, clients: list[str]) -> Handed:
        return self.comets[server - 1].deliver(note, clients)

    async def broadcast(self, server: int, note: Note) -> Handed:
        return self.comets[server - 1].broadcast(note)

    def tell(self, server: int, op: Close | Withdraw | Subscribed) -> None:
        self.told.append((server, op))
        comet = self.comets[server - 1]
        if isinstance(op, Close):
            comet.close(op)
        elif isinstance(op, Withdraw):
            comet.withdraw(op)
        else:
            comet.subscribed(op)

    # The world.

    def away(self, away: bool, *names: str) -> None:
        for name in names or ("meta", "user", "route", "message", "topic"):
            getattr(self.states, name).away = away

    async def rest(self) -> None:
        """Let everything happen that can without time passing."""
        for _ in range(3):
            for comet in self.comets:
                await comet.idle()
            for _ in range(5):
                await asyncio.sleep(0)

    async def pass_s(self, seconds: float) -> None:
        """Let time pass, second by second."""
        for _ in range(int(seconds)):
            self.clock.now_s += 1
            for comet in self.comets:
                comet.beat()
        await self.rest()

    async def client(
        self, user: str | None = None, expires_ms: int = 7 * DAY_MS
    ) -> tuple[str, str]:
        """A client of the app, and its token."""
        states, number = self.states, next(self._made)
        app = PushApp(key=APP, name=APP, open=True, sealed_secret=b"", created_ms=0)
        await states.meta.put_app(app, new=True)
        client = await states.user.claim_client(APP, f"device-{number}", self.ids.next("c"))
        token = f"token-{number}"
        holder = TokenHolder(client.id, self.clock.wall_ms() + expires_ms)
        await states.user.put_token(token_digest(token), holder)
        if user is not None:
            assert await states.user.bind(APP, user, client.id)
        return client.id, token

    async def login(self, client: tuple[str, str] | None = None, comet: int = 1) -> Device:
        """A device that has its key."""
        client = client or await self.client()
        device = Device(self.comets[comet - 1], *client)
        device.auth()
        await self.rest()
        device.agree()
        await self.rest()
        assert device.heard() == [Ok()]
        return device

    async def live(self, client: tuple[str, str] | None = None, comet: int = 1) -> Device:
        """A device that gets messages, and has read what waited."""
        device = await self.login(client, comet)
        device.say(GetMessageList())
        await self.rest()
        return device

    def note(self, content: bytes = b"hello", **fields: Any) -> Note:
        now_ms = self.clock.wall_ms()
        made: dict[str, Any] = {
            "id": self.ids.next("m" if "topic" in fields else "p"),
            "job": self.ids.next("j"),
            "app": APP,
            "type": 1,
            "ts_ms": now_ms,
            "expires_ms": now_ms + DAY_MS,
            "content": content,
        }
        return Note(**made | fields)

    async def send(self, note: Note, *clients: str, hand: bool = True) -> None:
        """Send to clients, as admin does."""
        states = self.states
        await self.job(note, len(clients))
        await states.message.put(note)
        await states.message.add(note, clients, 1000)
        if hand:
            for client, server in (await states.route.find(clients)).items():
                handed = await self.deliver(server, note, [client])
                await states.meta.count({note.job: {"sent": handed.taken}})
        await self.rest()

    async def publish(self, topic: str, hand: bool = True, **fields: Any) -> Note:
        """Send to a topic, as admin does."""
        note = self.note(topic=topic, **fields)
        await self.job(note, 0)
        position = await self.states.topic.append(
            APP, topic, note.id, self.clock.wall_ms(), note.expires_ms, note.collapse, 10_000
        )
        note = self.note(
            **{n: getattr(note, n) for n in note.__struct_fields__} | {"position": position}
        )
        await self.states.message.put(note)
        if hand:
            for server in await self.states.topic.servers(APP, topic):
                if server >= 0:
                    handed = await self.broadcast(server, note)
                    await self.states.meta.count({note.job: {"sent": handed.taken}})
        await self.rest()
        return note

    async def tally(self, note: Note) -> Tally:
        return (await self.states.meta.jobs([note.job]))[note.job][1]

    async def waiting(self, client: str) -> list[str]:
        return (await self.states.message.waiting([client])).get(client, [])

    async def job(self, note: Note, aimed: int) -> None:
        job = Job(
            id=note.job,
            app=APP,
            note=note.id,
            aim="client",
            target="",
            name="",
            created_ms=note.ts_ms,
            expires_ms=note.expires_ms,
        )
        await self.states.meta.put_job(job, aimed)


def codes(responses: list[Response]) -> list[int]:
    """The codes of errors among them."""
    return [response.code for response in responses if isinstance(response, Error)]
