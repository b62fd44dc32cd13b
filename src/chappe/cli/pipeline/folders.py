"""Folders of events, as they are given to commands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chappe.errors import ConfigError
from chappe.node.options import EVENTS


def check_folders(events: Iterable[Path]) -> None:
    """Raise ConfigError for one that is not there, or that is a node's whole folder."""
    for folder in events:
        if not folder.is_dir():
            raise ConfigError(f"--events: there is no folder {folder}")
        if (folder / EVENTS).is_dir():
            raise ConfigError(
                f"--events: {folder} is a node's folder: its events are in {folder / EVENTS}"
            )
