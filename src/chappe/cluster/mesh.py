"""The mesh: a link to every other member of the cluster, and who they are (H6).

Of two nodes the one with the smaller name dials, so that there is one link and one side that
decides about it. A member that leaves the view is not dialled any more; its link stays for as long
as it lives, since a registry that is away must not cut links that work.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
import structlog
from picows.common import WSError

from chappe.backoff import Backoff
from chappe.clock import Clock
from chappe.cluster.counters import MeshCounters
from chappe.cluster.dialler import Dialler
from chappe.cluster.link import Link, LinkSetting
from chappe.cluster.options import ClusterOptions, check_secret
from chappe.cluster.protocol import LinkProtocol
from chappe.cluster.tls import LinkTls
from chappe.edge.acceptor import Listen, Listener, ProtocolFactory
from chappe.errors import ClusterError, ConfigError
from chappe.registry.membership import Member, Members, Membership
from chappe.wire.link import (
    INCARNATION_MAX,
    NAME_BYTES_MAX,
    NONCE_BYTES,
    Accepting,
    Credentials,
    Dialling,
    Refused,
    link_key,
)

log = structlog.get_logger()

# How long a watch that the registry has ended rests before it begins anew.
_WATCH_PAUSE_S = 1.0


class OpenStream(Protocol):
    """How links are dialled; a simulation has its own."""

    async def __call__(
        self,
        factory: ProtocolFactory,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        server_name: str | None,
    ) -> object:
        """Open a connection with the protocol of a factory; raises OSError."""
        ...


def open_stream(loop: asyncio.AbstractEventLoop) -> OpenStream:
    """Dial with a loop's own connections, be it a real or a simulated one."""

    async def dial(
        factory: ProtocolFactory,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        server_name: str | None,
    ) -> object:
        named = (server_name or host) if tls is not None else None
        return await loop.create_connection(factory, host, port, ssl=tls, server_hostname=named)

    return dial


class Owner(Protocol):
    """What the links are for."""

    def link_up(self, link: Link) -> None:
        """A link is proven and ready; nothing was received from it yet."""
        ...

    def link_down(self, link: Link, reason: str) -> None:
        """A link is gone; once for each that was up, and nothing comes from it any more."""
        ...

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """The bodies of whole frames that one read has brought, in order, each once."""
        ...

    def writable(self, link: Link) -> None:
        """A link that was paused takes more."""
        ...


class Mesh:
    """Keeps this node linked to all others."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        me: Member,
        secret: bytes,
        membership: Membership,
        owner: Owner,
        dial: OpenStream,
        listen: Listen,
        entropy: Callable[[int], bytes],
        rng: Random,
        options: ClusterOptions,
        tls: LinkTls | None = None,
    ) -> None:
        _check_member(me)
        self.me = me
        self.counters = MeshCounters(loop.time)
        self._loop = loop
        self._membership = membership
        self._owner = owner
        self._dial = dial
        self._listen = listen
        self._entropy = entropy
        self._rng = rng
        self._options = options
        self._tls = tls
        self._credentials = Credentials(
            key=link_key(check_secret(secret)),
            cluster=options.cluster,
            name=me.name,
            incarnation=me.incarnation,
        )
        self._setting = LinkSetting(
            loop=loop, clock=clock, keeper=self, options=options.link, rng=rng
        )
        self._links: dict[str, Link] = {}
        self._members: Members = {}
        # Accepted and not yet up, in the order in which they came.
        self._strangers: dict[Link, None] = {}
        # Dialled and not yet up, by what tells them apart.
        self._dialling: dict[bytes, tuple[Link, Member]] = {}
        self._diallers: dict[str, tuple[Dialler, asyncio.Task[None]]] = {}
        self._attempt = 0
        self._listener: Listener | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False
        # Told of each beat that came back: the peer, how far its clock is ahead, the round trip.
        self.on_beat: Callable[[str, int, int], None] | None = None

    @property
    def links(self) -> Mapping[str, Link]:
        """The links that are up, by the peer's name."""
        return MappingProxyType(self._links)

    @property
    def unlinked(self) -> list[str]:
        """Members that the registry knows, and that this one has no link to."""
        return [name for name in self._members if name not in self._links and name != self.me.name]

    async def start(self) -> None:
        """Listen, join, and begin to link; raises ConfigError or ClusterError."""
        options = self._options
        tls = self._tls.server if self._tls is not None else None
        self._listener = self._listen(self._accept, options.host, options.port, tls)
        self.me = msgspec.structs.replace(self.me, url=self._url(self._listener.port))
        try:
            await self._membership.join(self.me)
        except (ClusterError, asyncio.CancelledError):
            self._stop_listening()
            raise
        self._watching = self._start_task(self._watch())

    async def stop(self) -> None:
        """Leave, say goodbye on every link, and stop; a second time it does nothing more."""
        self._stopping = True
        tasks = [task for _, task in self._diallers.values()]
        if self._watching is not None:
            tasks.append(self._watching)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._diallers.clear()
        self._stop_listening()
        try:
            await self._membership.leave()
        except ClusterError as error:
            log.warning("mesh.leave_failed", reason=str(error))
        links = list(self._links.values())
        for link in links:
            link.end("stopped", "this node is going away", goodbye=True)
        for stranger in list(self._strangers):
            stranger.abandon()
        if links:
            patience_s = 2 * self._options.link.close_timeout_s
            await asyncio.wait([link.closed for link in links], timeout=patience_s)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def linked(self, name: str) -> Link | None:
        """The link to that node that is up."""
        return self._links.get(name)

    async def dial(self, member: Member) -> Link:
        """Try once to link to a member; returns the link, whatever became of it."""
        self._attempt += 1
        handshake = Dialling(
            self._credentials,
            self._entropy(NONCE_BYTES),
            # Only a member that told its incarnation has told its name.
            expected=member.name if member.incarnation else "",
            attempt=self._attempt,
        )
        link = Link(self._setting, handshake)
        self._dialling[handshake.nonce] = link, member
        try:
            await self._open(link, member)
        except TimeoutError:
            link.end("timeout", "the peer did not answer in time")
        except (OSError, WSError, ValueError) as error:
            link.end("unreachable", str(error))
        finally:
            del self._dialling[handshake.nonce]
            if not link.settled.done():
                link.abandon()
        return link

    async def _open(self, link: Link, member: Member) -> None:
        options = self._options.link
        parts = urlsplit(member.url)
        host, port = parts.hostname, parts.port
        if parts.scheme not in ("ws", "wss") or not host or not port:
            raise ValueError(f"url: {member.url!r} is not like ws://10.0.0.7:7403")
        if (parts.scheme == "wss") != (self._tls is not None):
            raise ValueError(f"url: {member.url!r}: one side has TLS and the other has not")
        protocol: LinkProtocol | None = None

        def factory() -> LinkProtocol:
            nonlocal protocol
            protocol = LinkProtocol(
                link, parts.netloc, options.frame_bytes_max, options.handshake_timeout_s
            )
            return protocol

        context = self._tls.client if self._tls is not None else None
        name = self._tls.name if self._tls is not None else None
        async with asyncio.timeout(options.handshake_timeout_s):
            await self._dial(factory, host, port, context, name)
            assert protocol is not None
            await protocol.opened()
            # Shielded: a dial that is given up must not cancel what the link has yet to say.
            await asyncio.shield(link.settled)

    def _accept(self) -> LinkProtocol:
        options = self._options.link
        link = Link(self._setting, Accepting(self._credentials, self._entropy(NONCE_BYTES)))
        return LinkProtocol(link, None, options.frame_bytes_max, options.handshake_timeout_s)

    def arrived(self, link: Link) -> None:
        """Somebody has connected; when there are too many, the one that waits longest goes."""
        while len(self._strangers) >= self._options.link.strangers_max:
            # So a node, which is quick, comes in past any number that say nothing.
            next(iter(self._strangers)).end("crowded", "too many strangers at once")
        self._strangers[link] = None

    def judge(self, link: Link) -> None:
        """Decide whether a proven link may come up; raises Refused."""
        existing = self._links.get(link.name)
        if self._stopping:
            raise Refused("stopping", "this node is going away", proven=True)
        if isinstance(link.handshake, Dialling):
            self._judge_dialled(link, self._dialling[link.handshake.nonce][1], existing)
        elif link.name > self.me.name:
            raise Refused("role", "the smaller name dials", proven=True)
        elif existing is not None and _age(existing) > _age(link):
            raise Refused("stale", "an older link than the one that is up", proven=True)

    def _judge_dialled(self, link: Link, member: Member, existing: Link | None) -> None:
        if link.name < self.me.name:
            raise Refused("role", "the smaller name dials", proven=True)
        if link.incarnation < member.incarnation:
            raise Refused("stale", "an older run than the registry knows", proven=True)
        if existing is not None and existing.incarnation >= link.incarnation:
            raise Refused("linked", "there is a link already", proven=True)

    def came_up(self, link: Link) -> None:
        """A link is up; the one that it replaces goes."""
        self._strangers.pop(link, None)
        if (existing := self._links.get(link.name)) is not None:
            existing.end("replaced")
        self._links[link.name] = link
        self.counters.came_up()
        log.info(
            "link.up", peer=link.name, incarnation=link.incarnation, address=link.address,
            dialled=link.dialled,
        )  # fmt: skip
        self._owner.link_up(link)

    def went_down(self, link: Link, reason: str, detail: str) -> None:
        """A link that was up is gone."""
        if self._links.get(link.name) is link:
            del self._links[link.name]
        self.counters.went_down(link, reason)
        log.info("link.down", peer=link.name, reason=reason, detail=detail)
        for dialler, _ in self._diallers.values():
            dialler.link_changed()
        self._owner.link_down(link, reason)

    def failed(self, link: Link, refused: Refused) -> None:
        """A link ended before it was up."""
        self._strangers.pop(link, None)
        handshake = link.handshake
        if isinstance(handshake, Accepting) and refused.cause == "itself":
            self._met_itself(handshake.dialler_nonce, refused)
        if self.counters.failed(refused.cause):
            log.warning(
                "link.refused",
                reason=refused.reason,
                cause=refused.cause,
                address=link.address,
                peer=link.name or None,
                dialled=link.dialled,
            )

    def _met_itself(self, nonce: bytes, refused: Refused) -> None:
        """This node has dialled itself: the dialling end must know, to never do it again."""
        if (dialling := self._dialling.get(nonce)) is not None:
            dialling[0].end(refused.cause, refused.reason)

    def received(self, link: Link, bodies: list[bytes]) -> None:
        """Give bodies to the owner."""
        self._owner.received(link, bodies)

    def beat(self, link: Link, ahead_us: int, round_trip_us: int) -> None:
        """A beat came back."""
        if self.on_beat is not None:
            self.on_beat(link.name, ahead_us, round_trip_us)

    def writable(self, link: Link) -> None:
        """Tell the owner that a link takes more."""
        self._owner.writable(link)

    async def _watch(self) -> None:
        """Follow the view; a registry that ends the watch is asked again."""
        while True:
            try:
                async for members in self._membership.watch():
                    self._follow(members)
            except ClusterError as error:
                log.warning("mesh.watch_failed", reason=str(error))
            await asyncio.sleep(_WATCH_PAUSE_S)

    def _follow(self, members: Members) -> None:
        """Dial who is new, and nobody who has left."""
        self._members = members
        for name in [name for name in self._diallers if name not in members]:
            self._diallers.pop(name)[1].cancel()
        for name, member in members.items():
            if name in self._diallers:
                self._diallers[name][0].update(member)
            elif self._is_mine_to_dial(member):
                self._diallers[name] = self._begin_to_dial(member)

    def _is_mine_to_dial(self, member: Member) -> bool:
        if member.name == self.me.name or member.url == self.me.url:
            return False
        return not member.incarnation or self.me.name < member.name

    def _begin_to_dial(self, member: Member) -> tuple[Dialler, asyncio.Task[None]]:
        options = self._options.link
        backoff = Backoff(options.backoff_first_s, options.backoff_max_s, self._rng)
        dialler = Dialler(self, member, backoff, options.backoff_max_s)
        return dialler, self._start_task(dialler.run(self._loop.time))

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine)
        task.add_done_callback(self._check_task)
        return task

    def _check_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "the mesh has failed", "exception": error, "task": task}
            )

    def _url(self, port: int) -> str:
        given = urlsplit(self.me.url)
        host = given.hostname or self._options.advertise or self._options.host
        scheme = "wss" if self._tls is not None else "ws"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{given.port or port}"


def _age(link: Link) -> tuple[int, int]:
    return link.incarnation, link.attempt


def _check_member(me: Member) -> None:
    name = me.name.encode(errors="replace")
    if not me.name.isprintable() or not 0 < len(name) <= NAME_BYTES_MAX:
        raise ConfigError(f"cluster.name: 1 to {NAME_BYTES_MAX} printable bytes, please")
    if not 0 < me.incarnation <= INCARNATION_MAX:
        raise ConfigError("cluster.incarnation: must be above 0")
