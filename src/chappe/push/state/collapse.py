"""What stands for a collapse key in a store: short, and the same in all of them.

Of two keys of one client, or one topic, that are taken for one, the chance is one in 2**64.
"""

from __future__ import annotations

from hashlib import blake2b

from chappe.errors import StorageError

COLLAPSE_BYTES = 8


def collapse_digest(collapse: str | None) -> bytes:
    """Eight bytes, or none where there is no key; raises StorageError for what is no text."""
    if collapse is None:
        return b""
    try:
        return blake2b(collapse.encode(), digest_size=COLLAPSE_BYTES).digest()
    except UnicodeEncodeError:
        raise StorageError("a collapse key has a character that cannot be written") from None
