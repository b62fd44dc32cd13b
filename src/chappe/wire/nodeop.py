"""What all ops between nodes have in common."""

from __future__ import annotations

import msgspec


class NodeOp(msgspec.Struct, array_like=True, gc=False):
    """Any op between nodes."""
