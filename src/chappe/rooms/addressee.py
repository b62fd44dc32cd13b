"""Addressees: the processes that this one sends datagrams to, each with the ticket it gave.

Before somebody has given a ticket, what is said to it waits, and a HELLO goes out again and again,
less and less often. What waits is bounded in bytes and in time: a message that is seconds late
would be of use to nobody.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator

from chappe.rooms.role import Endpoint
from chappe.wire.datagram import HOST_BYTES_MAX, NONCE_BYTES, Seal
from chappe.wire.parcel import APART
from chappe.wire.rooms import OPS_MAX

# How long a HELLO may be without an answer: twice as long each time.
HELLO_S, HELLO_S_MAX = 0.02, 1.0
# How long something waits for a ticket; longer than the longest time between two HELLOs.
WAITING_S = 2.0
# Who is sent nothing for that long is forgotten, and has to be asked for a ticket again.
IDLE_S = 60.0
# Of how many messages copies are told apart; no datagram has more ops.
COPIES_MAX = OPS_MAX
# What one tick may have for one addressee.
GATHERED_BYTES_MAX = 8 * 1024 * 1024


class Addressee:
    """Somebody who is sent datagrams."""

    __slots__ = (
        "copies",
        "counter",
        "endpoint",
        "gathered_bytes",
        "hello_due",
        "hello_s",
        "hellos",
        "name",
        "nonce",
        "ops",
        "seal",
        "ticket",
        "used",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, endpoint: Endpoint, seal: Seal, counter: int) -> None:
        self.endpoint = endpoint
        self.seal = seal
        # Of the last datagram; never begins anew, whatever the ticket.
        self.counter = counter
        # 0: it has given none.
        self.ticket = 0
        self.name = ""
        # Of the HELLO that has no answer yet.
        self.nonce = b""
        self.hello_due = -math.inf
        self.hello_s = HELLO_S
        # So many HELLOs have had no answer.
        self.hellos = 0
        # What was said in this tick, encoded.
        self.ops: list[bytes] = []
        # Messages of which a copy is among the last of these, or of those that wait.
        self.copies: set[int] = set()
        self.gathered_bytes = 0
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.waiting_bytes = 0
        self.used = math.inf

    def gather(self, op: bytes, copy_of: int = 0) -> bool:
        """Keep an op for the end of the tick; False if there is no more room.

        No two copies of one message leave in one datagram: they would be lost together.
        """
        if self.gathered_bytes + len(op) > GATHERED_BYTES_MAX:
            return False
        if copy_of:
            if copy_of in self.copies or len(self.copies) >= COPIES_MAX:
                self.ops.append(APART)
                self.copies.clear()
            self.copies.add(copy_of)
        self.gathered_bytes += len(op)
        self.ops.append(op)
        return True

    def gathered(self) -> list[bytes]:
        """What is to be sent now: what has waited first."""
        ops = [op for _, op in self.waiting] + self.ops if self.waiting else self.ops
        self.waiting.clear()
        self.ops = []
        self.copies.clear()
        self.waiting_bytes = self.gathered_bytes = 0
        return ops

    def hold(self, bytes_max: int, now: float) -> int:
        """Let what was gathered wait for a ticket; return how many ops had to go for it.

        Copies that come later are told apart from those that wait: all leave at once.
        """
        self.waiting.extend((now + WAITING_S, op) for op in self.ops)
        self.waiting_bytes += self.gathered_bytes
        self.ops = []
        self.gathered_bytes = 0
        dropped = 0
        # One op may be larger than that, and is no more than one.
        while self.waiting_bytes > bytes_max and len(self.waiting) > 1:
            dropped += self._drop()
        return dropped

    def expire(self, now: float) -> int:
        """Drop what has waited for too long; return how many ops."""
        dropped = 0
        while self.waiting and self.waiting[0][0] <= now:
            dropped += self._drop()
        return dropped

    def drop(self) -> int:
        """Drop all that waits; return how many ops."""
        return self.expire(math.inf)

    def _drop(self) -> bool:
        """Drop what has waited longest; whether that is an op."""
        _, op = self.waiting.popleft()
        self.waiting_bytes -= len(op)
        return op != APART


class Addressees:
    """All of them, the least recently used one first: it is forgotten when there are too many."""

    def __init__(
        self,
        *,
        key: bytes,
        peers_max: int,
        entropy: Callable[[int], bytes],
        dropped: Counter[str],
    ) -> None:
        self._key = key
        self._peers_max = peers_max
        self._entropy = entropy
        self._dropped = dropped
        self._all: OrderedDict[Endpoint, Addressee] = OrderedDict()
        self._nonces: dict[bytes, Addressee] = {}
        self._tickets: dict[int, Addressee] = {}
        # The largest counter of who was forgotten: it may still have a ticket for us, by which it
        # remembers what was there.
        self._counter = 0

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Addressee]:
        return iter(self._all.values())

    def get(self, endpoint: Endpoint) -> Addressee | None:
        """The one there, if it is known."""
        return self._all.get(endpoint)

    def add(self, endpoint: Endpoint) -> Addressee | None:
        """One that is not known yet; None if that is nowhere, or all others are in use."""
        host, port = endpoint
        if not (0 < port < 65_536 and 0 < len(host.encode()) <= HOST_BYTES_MAX):
            self._dropped["nowhere"] += 1
            return None
        if len(self._all) >= self._peers_max:
            oldest = next(iter(self._all.values()))
            if oldest.ops:
                self._dropped["peers_full"] += 1
                return None
            self._forget(oldest)
        addressee = Addressee(endpoint, Seal(self._key, host, port), self._counter)
        self._all[endpoint] = addressee
        return addressee

    def use(self, addressee: Addressee) -> None:
        """Let others be forgotten before this one."""
        self._all.move_to_end(addressee.endpoint)

    def ask(self, addressee: Addressee) -> None:
        """Give it a nonce for a HELLO."""
        addressee.nonce = self._entropy(NONCE_BYTES)
        self._nonces[addressee.nonce] = addressee

    def asked(self, nonce: bytes) -> Addressee | None:
        """Who was asked for a ticket with that nonce, and has not answered."""
        return self._nonces.get(nonce)

    def ticketed(self, ticket: int) -> Addressee | None:
        """Whose ticket that is."""
        return self._tickets.get(ticket)

    def welcomed(self, addressee: Addressee, ticket: int, name: str) -> None:
        """Note the ticket that it gave."""
        self._nonces.pop(addressee.nonce, None)
        addressee.nonce = b""
        addressee.hello_s = HELLO_S
        addressee.hellos = 0
        addressee.hello_due = -math.inf
        addressee.name = name
        addressee.ticket = ticket
        self._tickets[ticket] = addressee

    def estranged(self, addressee: Addressee) -> None:
        """Note that its ticket is worth nothing any more."""
        self._tickets.pop(addressee.ticket, None)
        addressee.ticket = 0

    def forget_idle(self, now: float) -> None:
        """Forget who is sent nothing."""
        while self._all:
            oldest = next(iter(self._all.values()))
            if oldest.ops or oldest.used + IDLE_S > now:
                return
            self._forget(oldest)

    def _forget(self, addressee: Addressee) -> None:
        self._counter = max(self._counter, addressee.counter)
        self._dropped["unproven"] += addressee.drop()
        self._nonces.pop(addressee.nonce, None)
        self._tickets.pop(addressee.ticket, None)
        del self._all[addressee.endpoint]
