"""What the full proof alone has time for (`make proof`)."""

from __future__ import annotations

import os

import pytest

FULL = os.environ.get("CHAPPE_PROOF") == "full"


def full_only(reason: str) -> pytest.MarkDecorator:
    """Leave a test to the full proof."""
    return pytest.mark.skipif(not FULL, reason=f"{reason}; part of the full proof")
