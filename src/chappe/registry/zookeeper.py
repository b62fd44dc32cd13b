"""A ledger in ZooKeeper: what belongs to a session is ephemeral, seats are sequential too.

    /root/members/NAME@RUN        ephemeral: a member; of several runs the newest counts
    /root/values/%2Fpath          0x01 and the value; empty once it was deleted, so that a version
                                  is never had twice
    /root/leases/%2Fpath          its version counts the holders
    /root/leases/%2Fpath/held     ephemeral: session, tag, and what the holder says of itself
    /root/rows/%2Fpath/TAG-NNN    ephemeral and sequential: a seat; its number is that of the
                                  transaction that made it, so no two rows have one in common
    /root/sequences/%2Fpath       its version is the last number given

A session here is a ZooKeeper session and a number of our own: so one that its holder gave up is
never mistaken for the next, although ZooKeeper's may go on. It is renewed by a transaction, which
only a majority can carry out: a server that lost touch with the others could answer a ping, while
they give our session up. Of the time that ZooKeeper granted a third is kept back: a server tells
its leader of its sessions only twice a tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import quote, unquote

import msgspec
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from chappe.errors import ClusterError, Conflict, Held
from chappe.registry.bell import Bell
from chappe.registry.coordination import Versioned
from chappe.registry.kazoo_client import ZooKeeperClient
from chappe.registry.ledger import (
    MEMBERS,
    MembersFound,
    SeatsFound,
    SessionOver,
    seats_bell,
    value_bell,
)
from chappe.registry.membership import Member
from chappe.registry.options import RegistryOptions

# How often something is tried anew because another was faster.
ATTEMPTS = 8
_PRESENT = b"\x01"
_DELETED = b""


class ZooKeeperLedger:
    """A registry's server that is a ZooKeeper."""

    def __init__(
        self, hosts: str, place: str, root: str, login: str | None, options: RegistryOptions
    ) -> None:
        self.place = place
        self.bell = Bell()
        self._root = root
        self._zookeeper = ZooKeeperClient(hosts, place, login, options.lease_s, options.timeout_s)
        self._ask = self._zookeeper.ask
        self._sessions = 0
        # One callback a path: kazoo keeps a set of them until the path changes.
        self._callbacks: dict[str, Callable[[object], None]] = {}

    @property
    def lease_s(self) -> float:
        return self._zookeeper.session_s * 2 / 3

    def open(self) -> None:
        self._zookeeper.open(self._connection_changed)

    async def close(self) -> None:
        await self._zookeeper.close()

    async def begin(self) -> str:
        await self._ask("ensure_path", self._root)
        self._sessions += 1
        return f"{self._identity()}.{self._sessions}"

    async def renew(self, session: str) -> bool:
        failure = await self._zookeeper.transact(("check", self._root, -1))
        if failure is not None:
            raise ClusterError(f"{self.place}: {type(failure).__name__}")
        return session.partition(".")[0] == self._identity()

    async def end(self, session: str) -> None:
        """Nothing: each thing is taken back by itself, and the rest goes with ZooKeeper's."""

    async def enter(self, session: str, member: Member) -> Member | None:
        self._check(session)
        node = f"{self._root}/members/{_member_name(member)}"
        entry = msgspec.json.encode(member)
        newest = await self._newest(member.name)
        if newest is not None and newest.incarnation > member.incarnation:
            return newest
        try:
            await self._ask("create", node, entry, ephemeral=True, makepath=True)
        except NodeExistsError:
            other = await self._enter_again(node, member, entry)
            if other is not None:
                return other
        # Two runs may have entered at once: then the newer stays.
        newest = await self._newest(member.name)
        if newest is not None and newest.incarnation > member.incarnation:
            await self._remove(node)
            return newest
        return None

    async def withdraw(self, session: str, name: str) -> None:
        for entry in await self._names(f"{self._root}/members"):
            if unquote(entry.rpartition("@")[0]) == name:
                node = f"{self._root}/members/{entry}"
                stat = await self._ask("exists", node)
                if stat is not None and str(stat.ephemeralOwner) == session.partition(".")[0]:
                    await self._remove(node)

    async def members(self) -> MembersFound:
        entries = await self._children(f"{self._root}/members", MEMBERS)
        found = [self._member(entry) for entry in entries.values()]
        # The last of a name counts, and that is its newest run.
        found.sort(key=lambda member: (member.name, member.incarnation))
        return MembersFound({member.name: member for member in found}, None)

    async def next_id(self, path: str) -> int:
        node = self._path("sequences", path)
        try:
            stat = await self._ask("set", node, b"")
        except NoNodeError:
            await self._ask("ensure_path", node)
            stat = await self._ask("set", node, b"")
        number: int = stat.version
        if number < 1:
            raise ClusterError(f"{self.place}: the sequence {path} is used up")
        return number

    async def get(self, path: str, *, watch: bool = False) -> Versioned | None:
        node = self._path("values", path)
        callback = self._callback(value_bell(path)) if watch else None
        # Whichever server answers has first to catch up with the leader.
        await self._ask("sync", self._root)
        try:
            data, stat = await self._ask("get", node, watch=callback)
        except NoNodeError:
            if watch and await self._ask("exists", node, watch=callback) is not None:
                self.bell.ring(value_bell(path))
            return None
        return _versioned(data, stat.version)

    async def put(self, path: str, value: bytes, version: int | None) -> Versioned:
        node = self._path("values", path)
        try:
            if version is None:
                version = await self._absent(path, node, _PRESENT + value)
                if version is None:
                    return Versioned(value, 0)
            stat = await self._ask("set", node, _PRESENT + value, version=version)
        except (BadVersionError, NoNodeError):
            raise Conflict(path, await self.get(path)) from None
        return Versioned(value, stat.version)

    async def delete(self, path: str, version: int) -> None:
        try:
            await self._ask("set", self._path("values", path), _DELETED, version=version)
        except (BadVersionError, NoNodeError):
            raise Conflict(path, await self.get(path)) from None

    async def take(self, session: str, path: str, tag: str, holder: bytes) -> int:
        node = self._path("leases", path)
        held = f"{node}/held"
        entry = f"{session} {tag} ".encode() + holder
        for _ in range(ATTEMPTS):
            self._check(session)
            version, found = await self._lease(node)
            if found is not None and found[0] != session:
                raise Held(path, found[2])
            failure = await self._zookeeper.transact(
                ("set_data", node, b"", version),
                *([("delete", held)] if found is not None else []),
                ("create", held, entry, None, True),
            )
            if failure is None:
                self._still(session)
                return version + 1
        raise ClusterError(f"{self.place}: {path} keeps changing")

    async def free(self, session: str, path: str, tag: str) -> None:
        node = self._path("leases", path)
        for _ in range(ATTEMPTS):
            version, found = await self._lease(node)
            if found is None or found[:2] != (session, tag):
                return
            steps = (("check", node, version), ("delete", f"{node}/held"))
            if await self._zookeeper.transact(*steps) is None:
                return
        raise ClusterError(f"{self.place}: {path} keeps changing")

    async def sit(self, session: str, path: str, tag: str, value: bytes) -> int:
        self._check(session)
        prefix = f"{self._path('rows', path)}/{session}.{tag}-"
        made: str = await self._ask(
            "create", prefix, value, ephemeral=True, sequence=True, makepath=True
        )
        stat = await self._ask("exists", made)
        self._still(session)
        if stat is None:
            raise ClusterError(f"{self.place}: the seat in {path} was lost at once")
        number: int = stat.czxid
        return number

    async def tell(self, session: str, path: str, tag: str, value: bytes) -> None:
        self._check(session)
        folder = self._path("rows", path)
        for name in await self._names(folder):
            if name.startswith(f"{session}.{tag}-"):
                with suppress(NoNodeError):
                    await self._ask("set", f"{folder}/{name}", value)
                    return
        raise SessionOver(f"{self.place}: there is no such seat in {path}")

    async def rise(self, session: str, path: str, tag: str) -> None:
        folder = self._path("rows", path)
        for name in await self._names(folder):
            if name.startswith(f"{session}.{tag}-"):
                await self._remove(f"{folder}/{name}")

    async def seats(self, path: str) -> SeatsFound:
        folder, callback = self._path("rows", path), self._callback(seats_bell(path))
        names = await self._names(folder, callback)
        found = await asyncio.gather(*(self._seat(f"{folder}/{name}", callback) for name in names))
        return SeatsFound(dict(sorted(seat for seat in found if seat is not None)), None)

    async def _seat(
        self, node: str, callback: Callable[[object], None]
    ) -> tuple[int, bytes] | None:
        """A seat's number, and what it says: that may change, so it is watched."""
        try:
            data, stat = await self._ask("get", node, watch=callback)
        except NoNodeError:
            return None
        return stat.czxid, data

    async def _enter_again(self, node: str, member: Member, entry: bytes) -> Member | None:
        """Enter under this session what an earlier one of ours has entered, or give the other."""
        try:
            found, stat = await self._ask("get", node)
        except NoNodeError:
            raise ClusterError(f"{self.place}: {member.name} keeps changing") from None
        other = self._member(found)
        if other != member:
            return other
        if str(stat.ephemeralOwner) != self._identity():
            failure = await self._zookeeper.transact(
                ("delete", node), ("create", node, entry, None, True)
            )
            if failure is not None:
                raise ClusterError(f"{self.place}: {member.name} keeps changing")
        return None

    async def _newest(self, name: str) -> Member | None:
        return (await self.members()).members.get(name)

    async def _absent(self, path: str, node: str, data: bytes) -> int | None:
        """Make a value that was never there, or give the version of its deletion.

        Raises Conflict when there is one.
        """
        try:
            await self._ask("create", node, data, makepath=True)
        except NodeExistsError:
            found, stat = await self._ask("get", node)
            if found != _DELETED:
                raise Conflict(path, _versioned(found, stat.version)) from None
            version: int = stat.version
            return version
        return None

    async def _lease(self, node: str) -> tuple[int, tuple[str, str, bytes] | None]:
        """How many held a lease before, and session, tag and words of who holds it."""
        await self._ask("ensure_path", node)
        _, stat = await self._ask("get", node)
        try:
            entry, _ = await self._ask("get", f"{node}/held")
        except NoNodeError:
            return stat.version, None
        session, tag, holder = entry.split(b" ", 2)
        return stat.version, (session.decode(), tag.decode(), holder)

    async def _children(self, folder: str, bell: str) -> dict[str, bytes]:
        """Read all of a folder; what goes meanwhile rings the bell."""
        names = await self._names(folder, self._callback(bell))
        entries = await asyncio.gather(*(self._read(f"{folder}/{name}") for name in names))
        found = zip(names, entries, strict=True)
        return {name: entry for name, entry in found if entry is not None}

    async def _names(
        self, folder: str, callback: Callable[[object], None] | None = None
    ) -> list[str]:
        try:
            names: list[str] = await self._ask("get_children", folder, watch=callback)
        except NoNodeError:
            await self._ask("ensure_path", folder)
            names = await self._ask("get_children", folder, watch=callback)
        return names

    async def _read(self, node: str) -> bytes | None:
        try:
            data, _ = await self._ask("get", node)
        except NoNodeError:
            return None
        entry: bytes = data
        return entry

    async def _remove(self, node: str) -> None:
        with suppress(NoNodeError):
            await self._ask("delete", node)

    def _path(self, kind: str, path: str) -> str:
        return f"{self._root}/{kind}/{quote(path, safe='')}"

    def _callback(self, bell: str) -> Callable[[object], None]:
        if bell not in self._callbacks:

            def changed(_event: object) -> None:
                self._zookeeper.wake(partial(self.bell.ring, bell))

            self._callbacks[bell] = changed
        return self._callbacks[bell]

    def _connection_changed(self, connected: bool) -> None:
        # Whatever happened while there was none; the session may be another.
        if connected:
            self.bell.ring_all()

    def _identity(self) -> str:
        identity = self._zookeeper.session
        if identity is None:
            raise ClusterError(f"{self.place}: the connection broke")
        return str(identity)

    def _check(self, session: str) -> None:
        """Raise SessionOver if ZooKeeper's session is another than this one's."""
        if session.partition(".")[0] != self._identity():
            raise SessionOver(f"{self.place}: the session is over")

    def _still(self, session: str) -> None:
        """Raise ClusterError if what was just made was made under another session."""
        if session.partition(".")[0] != self._identity():
            raise ClusterError(f"{self.place}: the session was lost meanwhile")

    def _member(self, entry: bytes) -> Member:
        try:
            return msgspec.json.decode(entry, type=Member)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"{self.place}: an entry is no member: {error}") from error


def _member_name(member: Member) -> str:
    return f"{quote(member.name, safe='')}@{member.incarnation}"


def _versioned(data: bytes, version: int) -> Versioned | None:
    return None if data == _DELETED else Versioned(data[len(_PRESENT) :], version)
