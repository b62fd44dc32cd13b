"""Routes: which other nodes a user is on (H9, H10).

A node tells each peer who is connected to it: a snapshot when the link comes up, in pages as fast
as the peer takes them, and numbered deltas from then on. Both travel in order on one link, so a
peer's part of the table is right as soon as its last page has come. With the link goes all that the
peer said; a new link begins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from chappe.cluster.peer import Peer
from chappe.errors import Overload
from chappe.hub.app import App
from chappe.hub.hub import Hub
from chappe.wire.node import Changed, NodeOp
from chappe.wire.node import Routes as Page

PAGE_ADDRESSES = 500
# Routes of a lost peer that are forgotten in one turn of the loop: a million at once would stall
# everybody's messages.
PURGE_ROUTES = 5_000


class Audience(Protocol):
    """Told who is online anywhere, and who nowhere any more."""

    def online(
        self, app: str, address: str, *, at_ms: int | None = None, news: bool = True
    ) -> None:
        """An address got its first session in the cluster; if that is news."""
        ...

    def offline(self, app: str, address: str, *, at_ms: int | None = None) -> None:
        """An address lost its last session in the cluster."""
        ...


class Notebook(Protocol):
    """Keeps who is connected to this node."""

    def note(self, app: str, address: str, *, online: bool) -> None:
        """Remember that an address came to this node, or went."""
        ...


class Routes:
    """The routing table, kept in the apps, and what of it this node tells the others."""

    def __init__(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        self._hub = hub
        self._loop = loop
        # Who came and went here in this tick; the last word counts.
        self._changes: dict[tuple[str, str], bool] = {}
        self.audience: Audience | None = None
        self.notebook: Notebook | None = None
        # Told of whoever is found online, to look for them no longer.
        self.on_found: Callable[[App, str], None] = _nothing

    def came(self, app: App, address: str) -> None:
        """An address has its first session on this node."""
        self._change(app, address, online=True)
        if self.notebook is not None:
            self.notebook.note(app.name, address, online=True)
        if address not in app.routes:
            self._online(app, address)

    def went(self, app: App, address: str) -> None:
        """An address has lost its last session on this node."""
        self._change(app, address, online=False)
        if self.notebook is not None:
            self.notebook.note(app.name, address, online=False)
        if address not in app.routes:
            self._offline(app, address)

    def _online(
        self, app: App, address: str, at_ms: int | None = None, *, news: bool = True
    ) -> None:
        self.on_found(app, address)
        if self.audience is not None:
            self.audience.online(app.name, address, at_ms=at_ms, news=news)

    def _offline(self, app: App, address: str, at_ms: int | None = None) -> None:
        if self.audience is not None:
            self.audience.offline(app.name, address, at_ms=at_ms)

    def announce(self, app: App, address: str) -> None:
        """Say again that an address is here, to those who missed it (H12)."""
        self._change(app, address, online=True)

    def _change(self, app: App, address: str, *, online: bool) -> None:
        self._changes[app.name, address] = online
        self._hub.ensure_tick()

    def tell(self, peers: list[Peer]) -> None:
        """Tell each peer what this tick changed."""
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        online = [key for key, here in changes.items() if here]
        offline = [key for key, here in changes.items() if not here]
        size = sum(len(app) + len(address) + 8 for app, address in changes)
        for peer in peers:
            peer.seq_out += 1
            peer.tell(Changed(peer.seq_out, online, offline, self._hub.now_ms), size)

    def introduce(self, peer: Peer) -> None:
        """Tell a new peer who is connected here."""
        # What this tick changed is in the snapshot, or was never in it; saying it twice is no harm.
        peer.trickle(self._pages(peer))

    def _pages(self, peer: Peer) -> Iterator[NodeOp]:
        for name in list(self._hub.apps):
            app = self._hub.apps.get(name)
            addresses = list(app.endpoints) if app is not None else []
            for start in range(0, len(addresses), PAGE_ADDRESSES):
                # Those who left meanwhile were told of before this page: it must not bring them
                # back.
                page = [a for a in addresses[start : start + PAGE_ADDRESSES] if self._here(name, a)]
                yield Page(peer.seq_out, name, page)
        yield Page(peer.seq_out, "", [], True)

    def _here(self, app: str, address: str) -> bool:
        found = self._hub.apps.get(app)
        return found is not None and address in found.endpoints

    def read_page(self, peer: Peer, page: Page) -> None:
        """Take a page of a peer's table."""
        if page.addresses:
            self._add_all(peer, page.app, page.addresses, news=False)
        if page.last:
            peer.synced = True

    def read_changes(self, peer: Peer, changed: Changed) -> None:
        """Take a delta; one that is missing asks for everything anew."""
        if changed.seq != peer.seq_in + 1:
            peer.link.reset(f"a delta is missing: {changed.seq} after {peer.seq_in}")
            return
        peer.seq_in = changed.seq
        for name, address in changed.online:
            self._add_all(peer, name, [address], changed.at_ms)
        for name, address in changed.offline:
            app = self._hub.apps.get(name)
            if app is not None:
                self.remove(app, address, peer, changed.at_ms)

    def _add_all(
        self,
        peer: Peer,
        name: str,
        addresses: list[str],
        at_ms: int | None = None,
        *,
        news: bool = True,
    ) -> None:
        try:
            app = self._hub.app(name)
        except Overload:
            return  # not known here, such a user is asked for when somebody writes to it
        self._hub.fanout.end()
        routes = app.routes
        for address in addresses:
            there = routes.get(address)
            if there is None:
                routes[address] = peer.alone
                if address not in app.endpoints:
                    self._online(app, address, at_ms, news=news)
            elif peer not in there:
                routes[address] = (*there, peer)

    def add(self, peer: Peer, app: str, address: str) -> None:
        """A peer says that it has this address."""
        self._add_all(peer, app, [address], news=False)

    def remove(self, app: App, address: str, peer: Peer, at_ms: int | None = None) -> None:
        """An address is not on that node (any more)."""
        there = app.routes.get(address)
        if there is None or peer not in there:
            return
        self._hub.fanout.end()
        if len(there) > 1:
            app.routes[address] = tuple(one for one in there if one is not peer)
            return
        del app.routes[address]
        if address not in app.endpoints:
            self._offline(app, address, at_ms)
        self._hub.forget_app(app)

    def drop(self, peer: Peer) -> None:
        """A peer is gone, and with it all who were there."""
        self._purge(peer, ((app, list(app.routes)) for app in list(self._hub.apps.values())))

    def _purge(self, peer: Peer, tables: Iterator[tuple[App, list[str]]]) -> None:
        for app, addresses in tables:
            while addresses:
                some = addresses[-PURGE_ROUTES:]
                del addresses[-PURGE_ROUTES:]
                for address in some:
                    if peer in app.routes.get(address, ()):
                        self.remove(app, address, peer)
                if addresses:
                    rest = _before(app, addresses, tables)
                    self._loop.call_soon(self._purge, peer, rest)
                    return


def _before(
    app: App, addresses: list[str], tables: Iterator[tuple[App, list[str]]]
) -> Iterator[tuple[App, list[str]]]:
    yield app, addresses
    yield from tables


def _nothing(app: App, address: str) -> None:
    """Nobody has to know."""
