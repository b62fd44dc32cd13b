"""The states of push in one SQLite file: the embedded default."""

from chappe.push.state.sqlite.place import SqlitePlace

__all__ = ["SqlitePlace"]
