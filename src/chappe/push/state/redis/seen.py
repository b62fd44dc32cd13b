"""Which names came already: a scan of Redis may give one twice.

They are kept in a temporary file of SQLite's, so that there may be any number of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from hashlib import blake2b


class Seen:
    """Names by digests that nobody finds two names for."""

    def __init__(self) -> None:
        # No name: a file of its own, which goes with the connection.
        self._files = sqlite3.connect("", isolation_level=None)
        self._files.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")

    def new(self, names: Iterable[bytes]) -> list[bytes]:
        """Those that did not come before."""
        self._files.execute("BEGIN")
        fresh = [name for name in names if self._add(name)]
        self._files.execute("COMMIT")
        return fresh

    def close(self) -> None:
        """Forget them."""
        self._files.close()

    def _add(self, name: bytes) -> bool:
        row = (blake2b(name, digest_size=16).digest(),)
        return self._files.execute("INSERT OR IGNORE INTO seen VALUES (?)", row).rowcount > 0
