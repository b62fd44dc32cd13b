"""The file system as the journal uses it: blocking, and passed in, so that one can be simulated.

Everything raises OSError as the operating system does. What was appended is on the disk after
`sync`, names are after `sync_dir`.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Protocol

from chappe.errors import StorageError

# Written aside under this ending first; whatever has it at a start is left over from a crash.
ASIDE = ".tmp"


class File(Protocol):
    """A file that grows at its end."""

    @property
    def size(self) -> int:
        """How much was appended; room that was allocated ahead does not count."""
        ...

    def append(self, data: bytes) -> None:
        """Write at the end. After an error `size` is as before; beyond it anything may be."""
        ...

    def allocate(self, size: int) -> None:
        """Take room on the disk, so that the file can grow to that size; it reads as zeros."""
        ...

    def sync(self) -> None:
        """Wait until what was appended is on the disk (fdatasync)."""
        ...

    def close(self) -> None:
        """Close it; room that was allocated stays."""
        ...


class Handle(Protocol):
    """Something that is held until it is closed."""

    def close(self) -> None:
        """Let it go."""
        ...


class Fs(Protocol):
    """Files by their paths."""

    def make_dirs(self, path: str) -> None:
        """Make a folder and those above it; one that is there stays."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        ...

    def size(self, path: str) -> int:
        """How large the file is, with the room that was allocated."""
        ...

    def open_append(self, path: str) -> File:
        """Open a file at its end; it is made when there is none."""
        ...

    def read(self, path: str, offset: int, n: int) -> bytes:
        """Read at most so many bytes; fewer only at the end of the file."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Put a whole file in place: written aside, synced, renamed, its folder synced."""
        ...

    def truncate(self, path: str, size: int) -> None:
        """Cut a file and wait until all of it is on the disk (fsync)."""
        ...

    def rewrite(self, path: str, data: bytes) -> None:
        """Write the first bytes of a file again, in place, and wait until they are on the disk."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def rename(self, path: str, to: str) -> None:
        """Rename a file, over another if there is one."""
        ...

    def sync_dir(self, path: str) -> None:
        """Wait until the names in a folder are on the disk."""
        ...

    def lock(self, path: str) -> Handle:
        """Hold a lock file. Raises StorageError, which names its folder, when another has it."""
        ...


class OsFile:
    """A file of the operating system."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def append(self, data: bytes) -> None:
        at, view = self.size, memoryview(data)
        # At a position, since the end of an allocated file lies beyond what was appended.
        while view:
            written = os.pwrite(self._fd, view, at)
            at, view = at + written, view[written:]
        self.size = at

    def allocate(self, size: int) -> None:
        if size > self.size:
            os.posix_fallocate(self._fd, self.size, size - self.size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class OsLock:
    """A file that one process has locked, for as long as it lives."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        os.close(self._fd)


class OsFs:
    """The files of this machine."""

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def open_append(self, path: str) -> OsFile:
        return OsFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def read(self, path: str, offset: int, n: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            pieces: list[bytes] = []
            while n > 0 and (piece := os.pread(fd, n, offset)):
                pieces.append(piece)
                offset, n = offset + len(piece), n - len(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes) -> None:
        aside = path + ASIDE
        with suppress(FileNotFoundError):
            os.unlink(aside)
        file = self.open_append(aside)
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()
        os.replace(aside, path)
        self.sync_dir(os.path.dirname(path))

    def truncate(self, path: str, size: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def rewrite(self, path: str, data: bytes) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            view = memoryview(data)
            at = 0
            while at < len(view):
                at += os.pwrite(fd, view[at:], at)
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rename(self, path: str, to: str) -> None:
        os.replace(path, to)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            folder = os.path.dirname(path)
            raise StorageError(f"{folder}: another process has this journal open") from None
        return OsLock(fd)
