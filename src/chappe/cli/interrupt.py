"""Ctrl-C in the middle of something that can be gone on with."""

from __future__ import annotations

from chappe.errors import ChappeError


class Interrupted(ChappeError):
    """Somebody pressed Ctrl-C half-way, and is told how to go on."""
