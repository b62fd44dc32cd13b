"""The post: takes what roles say to each other and brings it there, in this process or another.

What goes to this process itself waits in a queue, unencoded, until the process drains it: no role
is called from within another. What goes to others is encoded once, gathered until the tick ends,
and leaves as few datagrams.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from chappe.errors import RemoteProtocolError
from chappe.rooms.forgeries import Forgeries
from chappe.rooms.options import RoomsOptions
from chappe.rooms.outbox import Address, Datagrams, Outbox, op_bytes_max
from chappe.rooms.role import Endpoint, Source
from chappe.rooms.sender import Senders
from chappe.wire.datagram import (
    BadDatagram,
    Kind,
    Seal,
    body_of,
    datagram_key,
    read_head,
    read_hello,
    write_welcome,
)
from chappe.wire.parcel import Pieces
from chappe.wire.rooms import (
    Carry,
    Deliver,
    RoomOp,
    Submit,
    decode_room_ops,
    encode_room_op,
    join_room_ops,
)

# What one tick may leave for this process itself.
LOCAL_OPS_MAX = 262_144
# What carries a message.
_COPIED = (Deliver, Carry, Submit)
# Answers to HELLOs and strangers in one tick.
ANSWERS_MAX = 1024


class LocalPost:
    """The post of a process that is alone: all its roles are here.

    `on_waiting` is called when something begins to wait after a flush; so who calls `drain_local`
    until nothing comes, and then `flush`, is called again for whatever is said later.
    """

    def __init__(self, *, me: Endpoint, name: str, on_waiting: Callable[[], None]) -> None:
        self.me = me
        self.dropped: Counter[str] = Counter()
        self._source = Source(me, name)
        self._on_waiting = on_waiting
        self._stirred = False
        self._local: list[tuple[RoomOp, Source]] = []

    @property
    def due(self) -> float:
        """When `flush` is to be called even if nothing is said."""
        return math.inf

    def send(self, to: Endpoint, op: RoomOp) -> bool:
        """Say something to one; whether it goes whole."""
        if to == self.me:
            self._keep(op)
        else:
            self.dropped["nowhere"] += 1
        return True

    def send_all(self, to: Iterable[Endpoint], op: RoomOp) -> bool:
        """Say the same to many; whether it goes whole."""
        for endpoint in to:
            self.send(endpoint, op)
        return True

    def drain_local(self) -> list[tuple[RoomOp, Source]]:
        """What was said to this process itself since the last call, in order."""
        said, self._local = self._local, []
        return said

    def take(self, data: bytes, source: Address, now: float) -> list[tuple[RoomOp, Source]]:
        """What a datagram says; nothing if it is not to be believed."""
        return []

    def flush(self, now: float) -> Datagrams:
        """End the tick: the datagrams to be sent, and where to."""
        self._stirred = False
        if self._local:
            self._stir()
        return []

    def _keep(self, op: RoomOp) -> None:
        if len(self._local) >= LOCAL_OPS_MAX:
            self.dropped["local_full"] += 1
            return
        self._local.append((op, self._source))
        self._stir()

    def _stir(self) -> None:
        if not self._stirred:
            self._stirred = True
            self._on_waiting()


class Post(LocalPost):
    """The post of a process among others; has the cluster's secret, and proves it.

    `me` is where others send to, in the very words that they get from the registry: what is sealed
    for another endpoint is not taken.
    """

    def __init__(
        self,
        *,
        options: RoomsOptions,
        me: Endpoint,
        name: str,
        secret: bytes,
        cluster: str,
        entropy: Callable[[int], bytes],
        on_waiting: Callable[[], None],
    ) -> None:
        super().__init__(me=me, name=name, on_waiting=on_waiting)
        key = datagram_key(secret, cluster)
        self._life = int.from_bytes(entropy(8), "big")
        self._seal = Seal(key, *me)
        self._outbox = Outbox(
            options=options,
            me=self._source,
            key=key,
            life=self._life,
            entropy=entropy,
            dropped=self.dropped,
        )
        self._pieces = Pieces(
            op_bytes_max=op_bytes_max(options),
            bytes_max=options.pieces_bytes_max,
            seconds=options.pieces_s,
        )
        self._senders = Senders(
            peers_max=options.peers_max, entropy=entropy, on_forgotten=self._pieces.forget
        )
        self._answers: Datagrams = []
        self._forgeries = Forgeries(me)
        # Datagrams that were not taken, by cause.
        self.refused: Counter[str] = Counter()
        self.datagrams_in = self.datagrams_out = self.bytes_in = self.bytes_out = 0

    @property
    def due(self) -> float:
        return min(self._outbox.due, self._pieces.due)

    def name_of(self, endpoint: Endpoint) -> str:
        """The name of the node there; empty if it has not said it."""
        return self._outbox.name_of(endpoint)

    @property
    def peers(self) -> tuple[int, int]:
        """How many this process sends to, and how many it takes something of."""
        return len(self._outbox), len(self._senders)

    @property
    def pieces_given_up(self) -> int:
        """Ops that came in pieces, and never whole."""
        return self._pieces.given_up

    def send(self, to: Endpoint, op: RoomOp) -> bool:
        if to == self.me:
            self._keep(op)
            return True
        encoded = encode_room_op(op)
        if self._outbox.gather(to, encoded, _copy_of(op)):
            self._stir()
        return self._outbox.is_whole(encoded)

    def send_all(self, to: Iterable[Endpoint], op: RoomOp) -> bool:
        encoded = b""
        copy_of = _copy_of(op)
        for endpoint in to:
            if endpoint == self.me:
                self._keep(op)
            else:
                encoded = encoded or encode_room_op(op)
                if self._outbox.gather(endpoint, encoded, copy_of):
                    self._stir()
        return self._outbox.is_whole(encoded)

    def take(self, data: bytes, source: Address, now: float) -> list[tuple[RoomOp, Source]]:
        self.datagrams_in += 1
        self.bytes_in += len(data)
        try:
            return self._take(data, source, now)
        except BadDatagram as bad:
            self.refused[bad.cause] += 1
            if bad.cause == "mac":
                self._forgeries.came(source, now)
            return []

    def flush(self, now: float) -> Datagrams:
        out, self._answers = self._answers, []
        self._outbox.flush(now, out)
        self._pieces.expire(now)
        self.datagrams_out += len(out)
        self.bytes_out += sum([len(data) for _, data in out])
        super().flush(now)
        return out

    def _take(self, data: bytes, source: Address, now: float) -> list[tuple[RoomOp, Source]]:
        kind, life, ticket, counter = read_head(data)
        if kind in (Kind.PARCEL, Kind.PIECE):
            self._seal.check(data)
            sender = self._senders.find(life, ticket)
            if sender is None:
                self._answer(source, data, Kind.STRANGER, ticket, counter)
                raise BadDatagram("ticket")
            if not sender.window.take(counter):
                raise BadDatagram("replayed")
            if self._forgeries:
                self._forgeries.believe(source)
            ops = self._open(kind, life, data, now)
            return [(op, sender.source) for op in ops]
        if kind == Kind.HELLO:
            self._greet(data, life, source, now)
        elif kind == Kind.WELCOME:
            self._outbox.welcomed(data, ticket)
            self._stir()
        elif kind == Kind.STRANGER:
            self._outbox.estranged(data, ticket)
        else:
            raise BadDatagram("kind")
        return []

    def _open(self, kind: int, life: int, data: bytes, now: float) -> list[RoomOp]:
        body: bytes | memoryview = body_of(data)
        if kind == Kind.PIECE:
            whole = self._pieces.take(life, body, now)
            if whole is None:
                return []
            body = join_room_ops((whole,))
        try:
            return decode_room_ops(body)
        except RemoteProtocolError:
            raise BadDatagram("garbage") from None

    def _greet(self, data: bytes, life: int, source: Address, now: float) -> None:
        self._seal.check(data)
        self._forgeries.believe(source)
        hello = read_hello(body_of(data))
        endpoint = (hello.host, hello.port)
        known = life in self._senders
        ticket = self._senders.admit(life, Source(endpoint, hello.name))
        body = write_welcome(hello.nonce, self._source.name)
        self._answer(source, data, Kind.WELCOME, ticket, 0, body)
        if not known:
            self._outbox.started(endpoint, now)

    def _answer(
        self, to: Address, data: bytes, kind: Kind, ticket: int, counter: int, body: bytes = b""
    ) -> None:
        if len(self._answers) >= ANSWERS_MAX:
            self.dropped["answers_full"] += 1
            return
        answer = self._seal.write(kind, self._life, ticket, counter, body)
        assert len(answer) <= len(data)
        self._answers.append((to, answer))
        self._stir()


def _copy_of(op: RoomOp) -> int:
    """The message that an op carries, if others carry it too (R13); 0 if not."""
    if isinstance(op, _COPIED) and op.reliable:
        return op.message.id
    return 0
