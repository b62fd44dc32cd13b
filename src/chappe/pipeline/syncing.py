"""Syncing: what was written before a note or a commit is there after a power cut, if that is.

Whoever writes a file leaves it to the system when it comes to the disk. What says that it counts
must not come there first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def sync_files(files: Iterable[Path], top: Path) -> None:
    """Wait until files are on the disk, with the names of all that is between them and a folder."""
    folders = {top}
    for file in files:
        sync(file)
        # Spark believes what it wrote beside a file more than the file.
        checksum = file.with_name(f".{file.name}.crc")
        if checksum.exists():
            sync(checksum)
        folders.update(one for one in file.parents if one.is_relative_to(top))
    for folder in folders:
        sync(folder)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
