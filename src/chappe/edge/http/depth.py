"""Reading again what a session was given, however deeply a payload in it is nested.

A payload is taken as deep as the node's own decoders go from where they stand. Here it lies in a
frame and a page, and more calls are under way: so deep again would be too deep, and one message
would end the stream or the fetch of whoever it is for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# More than any route's calls, and the levels around a payload.
_MARGIN = 500


def deep(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """A decoder that goes deeper than those through which payloads come in."""

    def decode_deep(data: bytes) -> T:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _MARGIN)
        try:
            return decode(data)
        finally:
            sys.setrecursionlimit(limit)

    return decode_deep
