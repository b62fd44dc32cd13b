"""The keeper: owns the embedded registry and the store of a data folder, and serves both.

Its socket is the supervisor's, so that it is there whether a keeper is or not. A keeper ends when
its cord is cut, after its lines have ended, and heeds no signal: whoever signals the whole group
must not take the store from under workers that still drain.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import structlog
import uvloop

from chappe.node.child import SIGNALS, Cord, Report
from chappe.node.keeper.desk import Desk
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import DEFAULTS, RegistryOptions
from chappe.store.store import Store
from chappe.store.url import open_store

log = structlog.get_logger()

SOCKET = "keeper.sock"
# What one keeper's registry may number: sessions, versions, epochs, sequences.
_NUMBERS = 1 << 40
# How long lines may take to end once the keeper was told to: workers have ended before.
_END_S = 10.0


class Keeper:
    """Serves a registry and a store to the lines that come in on a socket.

    A keeper that had others `before` it knows nothing of what they gave out. So its numbers are
    above all of theirs, and it gives out leases only when theirs have surely run out.
    """

    def __init__(
        self, store: Store, *, before: int = 0, options: RegistryOptions = DEFAULTS
    ) -> None:
        self._registry = MemoryRegistry(options, first=before * _NUMBERS)
        self._store = store
        now = asyncio.get_running_loop().time()
        self._leases_from = now + options.lease_s if before else now
        self._lines = 0
        self._desks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Take lines."""
        self._server = await asyncio.start_unix_server(self._serve, sock=listening)

    async def stop(self, patience_s: float = 0.0) -> None:
        """Let lines end by themselves for so long, cut the others, and close the store."""
        if self._server is not None:
            self._server.close()
        if self._desks:
            await asyncio.wait(self._desks, timeout=patience_s)
        for desk in self._desks:
            desk.cancel()
        await asyncio.gather(*self._desks, return_exceptions=True)
        await self._store.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines += 1
        ledger = self._registry.ledger(f"line-{self._lines}")
        task = asyncio.current_task()
        assert task is not None
        self._desks.add(task)
        try:
            await Desk(ledger, self._store, reader, writer, self._leases_from).serve()
        finally:
            self._desks.discard(task)


def keep(
    cord: Cord,
    before: int,
    *,
    listening: socket.socket,
    store: str,
    data: Path,
    options: RegistryOptions = DEFAULTS,
) -> None:
    """Live as a keeper until the cord is cut; raises ConfigError when the store cannot be had."""
    structlog.contextvars.bind_contextvars(process="keeper")
    for number in SIGNALS - {signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    async def run() -> None:
        cut = asyncio.Event()
        cord.on_cut(cut.set)
        keeper = Keeper(open_store(store, data), before=before, options=options)
        await keeper.start(listening)
        cord.tell(Report())
        await cut.wait()
        await keeper.stop(_END_S)

    uvloop.run(run())
