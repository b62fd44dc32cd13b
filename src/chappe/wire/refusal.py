"""Refusals: what a decoder's error tells the peer."""

from __future__ import annotations

import msgspec

from chappe.errors import RemoteProtocolError

# All that msgspec raises for bytes it cannot read; a string that is not UTF-8 has no type of its
# own there.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
REASON_CHARACTERS_MAX = 200


def refusal(error: Exception) -> RemoteProtocolError:
    """The error for a frame that could not be read; short, whatever the peer's text in it."""
    if isinstance(error, RecursionError):
        return RemoteProtocolError("nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return RemoteProtocolError("a string is not UTF-8")
    reason = str(error)
    if len(reason) > REASON_CHARACTERS_MAX:
        reason = reason[: REASON_CHARACTERS_MAX - 3] + "..."
    return RemoteProtocolError(reason)
