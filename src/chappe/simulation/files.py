"""A disk that loses what was not synced: files in memory, power cuts and bad sectors from a seed.

    append, cut  --> cache ---sync---------> platter      what a file holds
    make, rename --> cache ---sync_dir-----> platter      what a folder holds

Everybody reads the cache. A crash leaves the platter, and of what was under way in each file and
each folder a beginning: the last append of it may be torn anywhere, or have a sector of zeros. A
sync that fails has written a beginning too; the rest counts as written and is not: the next sync
says ok, as Linux does. Folders themselves are durable once they are made.
"""

from __future__ import annotations

import errno
import os
from random import Random

from chappe.errors import StorageError
from chappe.log.fs import ASIDE
from chappe.simulation.platter import Folder, Inode
from chappe.simulation.trace import Trace

SECTOR_BYTES = 512


class PowerCut(BaseException):
    """The machine is off: nothing that runs on it goes on, no handler either."""


class SimFile:
    """A file that is open for append; implements `log.fs.File`."""

    def __init__(self, fs: SimFs, path: str, inode: Inode) -> None:
        self._fs = fs
        self._path = path
        self._inode = inode
        self._boot = fs.boots
        self._closed = False
        self.size = len(inode.cache)

    def append(self, data: bytes) -> None:
        """Write at the end; when the disk is full, a part of it."""
        self._step("append", data=data)
        room = len(self._inode.cache) - self.size + self._fs.room()
        self._inode.write(self.size, data[:room])
        if room < len(data):
            raise _full(self._path)
        self.size += len(data)

    def allocate(self, size: int) -> None:
        """Take room, which reads as zeros."""
        self._step("allocate")
        length = len(self._inode.cache)
        if size - length > self._fs.room():
            raise _full(self._path)
        if size > length:
            self._inode.write(length, bytes(size - length))

    def sync(self) -> None:
        """Let all that was written reach the platter; raises OSError."""
        self._step("sync")
        self._fs._settle(self._inode, self._path)

    def close(self) -> None:
        """Take no more."""
        self._closed = True

    def _step(self, what: str, **details: bytes) -> None:
        assert not self._closed, f"{self._path} was closed"
        assert self._boot == self._fs.boots, f"{self._path} was opened before a crash"
        self._fs._step(what, self._path, **details)


class SimLock:
    """That a folder is somebody's."""

    def __init__(self, held: dict[str, SimLock], path: str) -> None:
        self._held = held
        self._path = path
        held[path] = self

    def close(self) -> None:
        """Let somebody else have it."""
        if self._held.get(self._path) is self:
            del self._held[self._path]


class SimFs:
    """Files of one machine; implements `log.fs.Fs`.

    `fail_sync(n)` lets the n-th sync from now fail, `cut(n)` cuts the power in the n-th operation
    from now, `capacity` may be lowered and raised, `flip` damages what is there.
    """

    def __init__(self, random: Random, trace: Trace, *, capacity: int = 1 << 28) -> None:
        self._random = random
        self._trace = trace
        self.capacity = capacity
        self.boots = 0
        self.operations = 0
        self.syncs = 0
        self._folders: dict[str, Folder] = {}
        self._locks: dict[str, SimLock] = {}
        self._sync_failures: set[int] = set()
        self._cut_at: int | None = None
        self._cut_at_sync: int | None = None
        self._off = False

    def room(self) -> int:
        """How many bytes are free; room that was taken away is missing at once."""
        used = sum(len(i.cache) for f in self._folders.values() for i in f.cache.values())
        return max(0, self.capacity - used)

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it."""
        self._step("make_dirs", path)
        parts = path.rstrip("/").split("/")
        for n in range(1, len(parts) + 1):
            self._folders.setdefault("/".join(parts[:n]), Folder())

    def list(self, path: str) -> list[str]:
        """The names in a folder."""
        self._step("list", path)
        return sorted(self._folder(path).cache)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        folder, name = self._split(path)
        return path in self._folders or (folder is not None and name in folder.cache)

    def size(self, path: str) -> int:
        """How many bytes a file has."""
        return len(self._inode(path).cache)

    def open_append(self, path: str) -> SimFile:
        """Open a file at its end; made if it is not there."""
        self._step("open", path)
        folder, name = self._split(path)
        if folder is None:
            raise _missing(path)
        if name not in folder.cache:
            folder.change({name: Inode()})
        return SimFile(self, path, folder.cache[name])

    def read(self, path: str, offset: int, n: int) -> bytes:
        """Read up to so many bytes."""
        self._step("read", path)
        return bytes(self._inode(path).cache[offset : offset + n])

    def write(self, path: str, data: bytes) -> None:
        """Replace a file as a whole: written aside, synced, renamed, folder synced."""
        aside = path + ASIDE
        if self.exists(aside):
            self.remove(aside)
        file = self.open_append(aside)
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()
        self.rename(aside, path)
        self.sync_dir(path.rpartition("/")[0])

    def truncate(self, path: str, size: int) -> None:
        """Cut a file, and sync it."""
        self._step("truncate", path)
        inode = self._inode(path)
        assert size <= len(inode.cache), "a cut does not grow a file"
        inode.dirty.append((size, None))
        del inode.cache[size:]
        self._step("sync", path)
        self._settle(inode, path)

    def rewrite(self, path: str, data: bytes) -> None:
        """Write the first bytes of a file again, in place."""
        inode = self._inode(path)
        self._step("rewrite", path, data=data)
        inode.write(0, data)
        self._step("sync", path)
        self._settle(inode, path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._step("remove", path)
        self._inode(path)
        folder, name = self._split(path)
        assert folder is not None
        folder.change({name: None})

    def rename(self, path: str, to: str) -> None:
        """Give a file another name in its folder, whose former bearer is gone."""
        self._step("rename", path)
        inode = self._inode(path)
        (folder, name), (target, new) = self._split(path), self._split(to)
        assert folder is not None
        assert folder is target, "files stay in their folders here"
        folder.change({name: None, new: inode})

    def sync_dir(self, path: str) -> None:
        """Let the names in a folder reach the platter."""
        self._step("sync_dir", path)
        folder = self._folder(path)
        self._count_sync(path)
        folder.settle(len(folder.dirty))

    def lock(self, path: str) -> SimLock:
        """Hold a lock file until the lock is closed; raises StorageError."""
        if path in self._locks:
            folder = path.rpartition("/")[0]
            raise StorageError(f"{folder}: another process has this journal open")
        self.open_append(path).close()
        return SimLock(self._locks, path)

    def fail_sync(self, n: int = 1) -> None:
        """Let the n-th sync from now fail."""
        self._sync_failures.add(self.syncs + n)

    def cut(self, n: int | None, *, syncs: bool = False) -> None:
        """Cut the power in the n-th operation, or the n-th sync, from now; or do not."""
        self._cut_at = None if n is None or syncs else self.operations + n
        self._cut_at_sync = None if n is None or not syncs else self.syncs + n

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Damage one bit of a file, cached and on the platter."""
        inode = self._inode(path)
        for data in (inode.cache, inode.platter):
            if offset < len(data):
                data[offset] ^= 1 << bit

    def kill(self) -> None:
        """End whoever uses it; the machine stays on, and nothing that was written is lost."""
        self._trace.record("disk.kill")
        self._begin_anew()

    def crash(self) -> None:
        """Lose what is not on the platter, except for a beginning of what was under way."""
        self._trace.record("disk.crash")
        for path in sorted(self._folders):
            folder = self._folders[path]
            for inode in folder.inodes():
                self._tear(inode)
            folder.settle(self._random.randint(0, len(folder.dirty)))
            folder.cache = dict(folder.platter)
            for inode in folder.cache.values():
                inode.cache = bytearray(inode.platter)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._locks.clear()
        self._sync_failures.clear()
        self.cut(None)
        self._off = False
        self.boots += 1

    def _tear(self, inode: Inode) -> None:
        """Let a beginning of what was under way survive, not necessarily whole."""
        random, dirty = self._random, inode.dirty
        count = random.randint(0, len(dirty))
        if dirty and random.random() < 0.5:
            offset, data = dirty[max(0, count - 1)]
            count = max(1, count)
            if data is not None:
                there = bytes(inode.platter[offset : offset + len(data)])
                dirty[count - 1] = (offset, self._damage(data, there))
        inode.settle(count)

    def _damage(self, data: bytes, there: bytes) -> bytes:
        """A write that was cut short, or lacks a sector: what was there before stays there."""
        random = self._random
        if random.random() < 0.7:
            return data[: random.randrange(len(data))]
        at = random.randrange(len(data)) // SECTOR_BYTES * SECTOR_BYTES
        hole = min(SECTOR_BYTES, len(data) - at)
        return data[:at] + there[at : at + hole].ljust(hole, b"\0") + data[at + hole :]

    def _settle(self, inode: Inode, path: str) -> None:
        try:
            self._count_sync(path)
        except OSError:
            inode.settle(self._random.randint(0, len(inode.dirty)))
            raise
        inode.settle(len(inode.dirty))

    def _count_sync(self, path: str) -> None:
        self.syncs += 1
        if self.syncs == self._cut_at_sync:
            self._off = True
            raise PowerCut
        if self.syncs in self._sync_failures:
            self._trace.record("disk.eio", path=path)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _step(self, what: str, path: str, **details: bytes) -> None:
        if self._off:
            raise PowerCut
        self.operations += 1
        self._trace.record(f"disk.{what}", path=path, **details)
        if self.operations == self._cut_at:
            self._off = True
            raise PowerCut

    def _folder(self, path: str) -> Folder:
        folder = self._folders.get(path.rstrip("/"))
        if folder is None:
            raise _missing(path)
        return folder

    def _split(self, path: str) -> tuple[Folder | None, str]:
        parent, _, name = path.rpartition("/")
        return self._folders.get(parent), name

    def _inode(self, path: str) -> Inode:
        folder, name = self._split(path)
        inode = folder.cache.get(name) if folder is not None else None
        if inode is None:
            raise _missing(path)
        return inode


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _full(path: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
