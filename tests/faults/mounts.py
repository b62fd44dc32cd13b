"""File systems of their own for nodes: one whose disk can lose its power, and small ones.

Only root mounts; for others the tests of them are skipped. Cuts of the power at every moment are
simulated in any case (tests/simulation).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers import missing

_CAP_SYS_ADMIN = 21


def _may_mount() -> bool:
    """Whether this process is root, and not only by name as in some containers."""
    status = Path("/proc/self/status").read_text()
    held = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(held.split()[1], 16) >> _CAP_SYS_ADMIN & 1)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")


class Mount:
    """A file system at a folder."""

    def __init__(self, at: Path) -> None:
        self.at = at
        if not _may_mount():
            pytest.skip("only root may mount")
        if shutil.which("mount") is None:
            raise missing("mount")
        at.mkdir(parents=True, exist_ok=True)
        self._make()
        self._mount()

    def _make(self) -> None:
        """Make what is mounted, unless the kernel has it."""

    def _mount(self) -> None:
        raise NotImplementedError

    def unmount(self) -> None:
        """Take it away; what a process that is about to end still has open there goes with it."""
        if self.at.is_mount():
            _run("umount", "--lazy", str(self.at))


class Disk(Mount):
    """An ext4 in a file. What was not synced is in the machine's memory only, not in the file."""

    def __init__(self, at: Path, mib: int) -> None:
        self._image = at.parent / "image"
        self._mib = mib
        super().__init__(at)

    def _make(self) -> None:
        # Not on the path of everybody who is root.
        mkfs = shutil.which("mkfs.ext4") or shutil.which("mkfs.ext4", path="/usr/sbin:/sbin")
        if mkfs is None:
            raise missing("e2fsprogs")
        with self._image.open("wb") as image:
            image.truncate(self._mib * 1024 * 1024)
        _run(mkfs, "-q", "-F", "-m", "0", str(self._image))

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.at))

    def sync(self) -> None:
        """Let all that was written be on the disk."""
        _run("sync", "--file-system", str(self.at))

    def cut(self) -> None:
        """Go on with what the disk had at this moment; nobody may use it then."""
        image = self._image.with_suffix(".cut")
        _run("cp", "--sparse=always", "--reflink=never", str(self._image), str(image))
        self.unmount()
        image.rename(self._image)
        self._mount()


class Memory(Mount):
    """A tmpfs of a size that can be changed."""

    def __init__(self, at: Path, kib: int) -> None:
        self._kib = kib
        super().__init__(at)

    def _mount(self) -> None:
        _run("mount", "-t", "tmpfs", "-o", f"size={self._kib}k", "chappe-test", str(self.at))

    def resize(self, kib: int) -> None:
        """Let it be larger or smaller."""
        _run("mount", "-o", f"remount,size={kib}k", str(self.at))
