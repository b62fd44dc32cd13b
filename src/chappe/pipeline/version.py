"""Whether tables are as this version makes them."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from chappe.errors import ConfigError
from chappe.pipeline.schema import TABLES


def check_version(tables: Path) -> None:
    """Raise ConfigError if there are tables that lack what this version reads from them.

    Tables are made of events: of those that are still there, they can be made anew. What was
    removed since is in the old tables alone.
    """
    for name, schema in TABLES.items():
        root = tables / name
        if not DeltaTable.is_deltatable(str(root)):
            continue
        known = {field.name for field in DeltaTable(root).schema().fields}
        if not known.issuperset(schema.names):
            raise ConfigError(
                f"--tables: {tables} was made by another version of chappe; "
                "make tables anew in another folder, of the events that are still there"
            )
