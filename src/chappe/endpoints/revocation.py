"""Revoked tokens as records of the directory: refused on every node, and after a restart."""

from __future__ import annotations

from collections.abc import Callable

from chappe.endpoints.directory import Directory
from chappe.endpoints.record import Record

_KIND = "token"
# A token that would never expire is remembered this long: until the year 2100.
_UNTIL_MS_MAX = 4_102_444_800_000
_REVOKED = b"\xc3"  # true, packed


class DirectoryRevocations:
    """Remembers the tokens that are good no more, and closes their sessions on this node when
    another node revokes one."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        # Called with app and token id; a hub's `close_token`.
        self._close: Callable[[str, str], object] | None = None
        self._own = False

    def close_with(self, close: Callable[[str, str], object]) -> None:
        """Call this with app and token id for each token that was revoked elsewhere, or before."""
        self._close = close
        self._directory.subscribe(_KIND, self._changed)

    def revoke(self, app: str, token_id: str, until: float) -> None:
        """Remember a token until then, in seconds since 1970; raises Overload or BadRequest.

        Whoever revokes closes the sessions of this node, and learns how many there were.
        """
        until_ms = int(min(until * 1000, _UNTIL_MS_MAX))
        self._own = True
        try:
            self._directory.put(app, f"{_KIND}:{token_id}", _REVOKED, max(1, until_ms))
        finally:
            self._own = False

    def is_revoked(self, app: str, token_id: str) -> bool:
        """Whether a token is good no more."""
        return self._directory.get(app, f"{_KIND}:{token_id}") is not None

    def _changed(self, record: Record) -> None:
        if self._close is not None and record.value is not None and not self._own:
            self._close(record.app, record.address.partition(":")[2])
