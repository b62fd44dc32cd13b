"""Patience: a name that one's own former connection still holds is asked for again."""

from __future__ import annotations

from chappe.errors import BadRequest, RequestError

# With the delays of reconnecting more than half a minute, several times what a hub needs to notice
# that a connection is gone.
_REFUSALS_MAX = 10


class Patience:
    """Bears so many refusals of a consumer's name after a reconnect."""

    def __init__(self, name: str | None) -> None:
        self._named = name is not None
        self._left = _REFUSALS_MAX

    def bears(self, error: RequestError) -> bool:
        """Whether to ask once more."""
        if not self._named or not isinstance(error, BadRequest):
            return False
        if not error.reason.startswith("name:") or not self._left:
            return False
        self._left -= 1
        return True

    def renew(self) -> None:
        """It was given."""
        self._left = _REFUSALS_MAX
