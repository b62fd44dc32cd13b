"""File systems of their own for nodes: one whose disk can lose its power, and small ones.

Both need root and a kernel that mounts; where that is not so, the tests say why they are skipped.
Cuts of the power at every moment are simulated in any case (tests/simulation).
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")


class Mount:
    """A file system at a folder."""

    def __init__(self, at: Path) -> None:
        self.at = at
        at.mkdir(parents=True, exist_ok=True)
        try:
            self._mount()
        except OSError as error:
            pytest.skip(f"this machine does not mount: {error}")

    def _mount(self) -> None:
        raise NotImplementedError

    def unmount(self) -> None:
        """Take it away."""
        if self.at.is_mount():
            _run("umount", str(self.at))


class Disk(Mount):
    """An ext4 in a file. What was not synced is in the machine's memory only, not in the file."""

    def __init__(self, at: Path, mib: int) -> None:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("there is no mkfs.ext4 (Debian's e2fsprogs)")
        self._image = at.parent / "image"
        at.parent.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(mib * 1024 * 1024)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        super().__init__(at)

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
