"""Notes: small files that are there whole or not at all, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from chappe.pipeline.syncing import sync


def read_note(file: Path) -> str:
    """What a note says."""
    return file.read_text()


def write_note(file: Path, text: str) -> None:
    """Write a file, in place of the one that is there."""
    aside = file.with_name(f".{file.name}")
    with aside.open("w") as note:
        note.write(text)
        note.flush()
        os.fsync(note.fileno())
    aside.replace(file)
    sync(file.parent)
