"""The outbox: what a process says to others, gathered for a tick, sealed with their tickets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import structlog

from chappe.rooms.addressee import HELLO_S_MAX, Addressee, Addressees
from chappe.rooms.options import RoomsOptions
from chappe.rooms.role import Endpoint, Source
from chappe.wire.datagram import (
    BadDatagram,
    Hello,
    Kind,
    body_of,
    read_welcome,
    write_hello,
)
from chappe.wire.parcel import PARTIAL_BYTES, Packer

log = structlog.get_logger()

# Where a datagram goes, or came from, as the socket has it: IPv6 has four parts.
Address = tuple[str, int] | tuple[str, int, int, int]
Datagrams = list[tuple[Address, bytes]]
# What an op may be larger than the message in it.
ENVELOPE_BYTES = 64 * 1024
# HELLOs without an answer that are no accident: who has died is out of the registry before.
HELLOS_SILENT = 30
_COMPLAIN_S = 60.0


def op_bytes_max(options: RoomsOptions) -> int:
    """The largest op that goes from one process to another."""
    return min(options.message_bytes_max + ENVELOPE_BYTES, options.pieces_bytes_max - PARTIAL_BYTES)


class Outbox:
    """Gathers ops by addressee, in order, and makes few datagrams of them."""

    def __init__(
        self,
        *,
        options: RoomsOptions,
        me: Source,
        key: bytes,
        life: int,
        entropy: Callable[[int], bytes],
        dropped: Counter[str],
    ) -> None:
        self._me = me
        self._life = life
        self._dropped = dropped
        self._unproven_bytes_max = options.unproven_bytes_max
        self._packer = Packer(options.datagram_bytes)
        self._op_bytes_max = min(op_bytes_max(options), self._packer.op_bytes_max)
        self._addressees = Addressees(
            key=key, peers_max=options.peers_max, entropy=entropy, dropped=dropped
        )
        # Who was said something in this tick; and who has to give a ticket for what waits.
        self._gathering: list[Addressee] = []
        self._asking: dict[Endpoint, Addressee] = {}
        self._complained = -math.inf
        # When the next HELLO is to be said.
        self.due = math.inf

    def __len__(self) -> int:
        return len(self._addressees)

    def name_of(self, endpoint: Endpoint) -> str:
        """The name of the node there; empty if it has not said it."""
        addressee = self._addressees.get(endpoint)
        return addressee.name if addressee is not None else ""

    def is_whole(self, op: bytes) -> bool:
        """Whether an op goes in one datagram, so that the loss of one datagram is all it risks."""
        return self._packer.pieces(len(op)) == 1

    def gather(self, to: Endpoint, op: bytes, copy_of: int = 0) -> bool:
        """Keep an op until the tick ends; True if it is the first one for somebody.

        What is a copy of a message leaves in another datagram than the message's other copies.
        """
        if len(op) > self._op_bytes_max and self._packer.pieces(len(op)) > 1:
            self._dropped["oversize"] += 1
            return False
        addressee = self._addressees.get(to) or self._addressees.add(to)
        if addressee is None:
            return False
        begins = not addressee.ops
        if not addressee.gather(op, copy_of):
            self._dropped["gathered_full"] += 1
            return False
        if begins:
            self._addressees.use(addressee)
            self._gathering.append(addressee)
        return begins

    def flush(self, now: float, out: Datagrams) -> None:
        """Add what is to be sent now."""
        gathering, self._gathering = self._gathering, []
        for addressee in gathering:
            addressee.used = now
            if addressee.ticket:
                self._pack(addressee, out)
            else:
                self._dropped["unproven"] += addressee.hold(self._unproven_bytes_max, now)
                self._ask(addressee)
        if self.due <= now:
            self._say_hello(now, out)
        self._addressees.forget_idle(now)

    def welcomed(self, data: bytes, ticket: int) -> None:
        """Take the ticket that somebody gives; raises BadDatagram."""
        nonce, name = read_welcome(body_of(data))
        addressee = self._addressees.asked(nonce)
        if addressee is None:
            raise BadDatagram("unasked")
        addressee.seal.check(data)
        if ticket == 0:
            raise BadDatagram("garbage")
        self._addressees.welcomed(addressee, ticket, name)
        self._gathering.append(addressee)

    def estranged(self, data: bytes, ticket: int) -> None:
        """Forget the ticket that somebody does not know any more; raises BadDatagram."""
        addressee = self._addressees.ticketed(ticket)
        if addressee is None:
            raise BadDatagram("unasked")
        addressee.seal.check(data)
        self._addressees.estranged(addressee)

    def started(self, endpoint: Endpoint, now: float) -> None:
        """Ask somebody who has just started at once, if anything waits for it."""
        if endpoint in self._asking:
            self._asking[endpoint].hello_due = self.due = now

    def _pack(self, addressee: Addressee, out: Datagrams) -> None:
        write, to = addressee.seal.write, addressee.endpoint
        for kind, body in self._packer.pack(addressee.gathered()):
            addressee.counter += 1
            out.append((to, write(kind, self._life, addressee.ticket, addressee.counter, body)))

    def _ask(self, addressee: Addressee) -> None:
        self._asking[addressee.endpoint] = addressee
        self.due = min(self.due, addressee.hello_due)

    def _say_hello(self, now: float, out: Datagrams) -> None:
        """Ask all for a ticket whose turn it is; and nobody any more for whom nothing waits."""
        self.due = math.inf
        for addressee in list(self._asking.values()):
            self._dropped["unproven"] += addressee.expire(now)
            if addressee.ticket or not addressee.waiting:
                del self._asking[addressee.endpoint]
                continue
            if addressee.hello_due <= now:
                out.append((addressee.endpoint, self._hello(addressee)))
                addressee.hello_due = now + addressee.hello_s
                addressee.hello_s = min(2 * addressee.hello_s, HELLO_S_MAX)
                addressee.hellos += 1
                if addressee.hellos >= HELLOS_SILENT:
                    self._complain(addressee, now)
            self.due = min(self.due, addressee.hello_due)

    def _complain(self, addressee: Addressee, now: float) -> None:
        """Say, not too often, that somebody does not answer who is in the registry all the time."""
        if now - self._complained < _COMPLAIN_S:
            return
        self._complained = now
        host, port = addressee.endpoint
        log.warning(
            "rooms.silent",
            reason=f"{host}:{port} answers no HELLO: is it up, does UDP get there, and does it "
            "have the same cluster.secret?",
            hellos=addressee.hellos,
        )

    def _hello(self, addressee: Addressee) -> bytes:
        if not addressee.nonce:
            self._addressees.ask(addressee)
        body = write_hello(Hello(addressee.nonce, *self._me.endpoint, self._me.name))
        return addressee.seal.write(Kind.HELLO, self._life, 0, 0, body)
