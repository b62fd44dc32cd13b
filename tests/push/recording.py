"""Comets that write down what they are told, a provider that does, a clock that is set by hand."""

from __future__ import annotations

from chappe.errors import Unreachable
from chappe.push.comets import CometCard, Handed
from chappe.wire.pushlink import Close, Subscribed, Withdraw


class RecordingComets:
    """Comets by their server numbers; each takes notes for the clients that are on it."""

    def __init__(self, *servers: int) -> None:
        self.cards = {n: CometCard(n, f"comet-{n}", f"10.0.0.{n}:7403") for n in servers}
        # Clients that have a connection, by server, whatever routes say.
        self.here: dict[int, set[str]] = {n: set() for n in servers}
        self.listening: dict[int, int] = {}
        self.away: set[int] = set()
        self.delivered: list[tuple[int, str, bytes, list[str]]] = []
        self.broadcasts: list[tuple[int, str, bytes]] = []
        self.told: list[tuple[int, object]] = []

    def living(self):
        return {n: card for n, card in self.cards.items() if n not in self.away}

    def desks(self):
        return self.living().keys()

    async def deliver(self, server, note, clients):
        if server in self.away or server not in self.cards:
            raise Unreachable("comet: gone")
        self.delivered.append((server, note.id, note.content, list(clients)))
        taken = [client for client in clients if client in self.here[server]]
        return Handed(len(taken), tuple(c for c in clients if c not in self.here[server]))

    async def broadcast(self, server, note):
        if server in self.away or server not in self.cards:
            raise Unreachable("comet: gone")
        self.broadcasts.append((server, note.id, note.content))
        return Handed(self.listening.get(server, 0))

    def tell(self, server, op: Close | Withdraw | Subscribed):
        self.told.append((server, op))

    def told_of(self, kind):
        """What was told of one kind."""
        return [(server, op) for server, op in self.told if isinstance(op, kind)]


class RecordingProvider:
    """A bridge to somewhere else."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, list[str]]] = []
        self.taken_back: list[tuple[str, list[str]]] = []

    def offline(self, note, clients):
        self.notes.append((note.id, list(clients)))

    def withdrawn(self, note, clients):
        self.taken_back.append((note.id, list(clients)))


class Tells:
    """A recorder of which only what is told matters."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict]] = []

    def tell(self, kind, app, **columns):
        self.rows.append((kind, {"app": app, **columns}))

    def tell_each(self, kind, app, count, each, **columns):
        for at in range(count):
            row = {name: values[at] for name, values in each.items()}
            self.rows.append((kind, {"app": app, **columns, **row}))

    def of(self, kind):
        return [row for told, row in self.rows if told == kind]


class HandClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def wall_ms(self) -> int:
        return self.ms

    def wall_us(self) -> int:
        return self.ms * 1000

    def monotonic(self) -> float:
        return self.ms / 1000

    def pass_s(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)
