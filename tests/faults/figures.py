"""What a proof measured beside passing: kept for `make proof`, which writes it down."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

FULL = os.environ.get("CHAPPE_PROOF") == "full"


def tell(what: str, **figures: float | str | None) -> None:
    """Write figures down where `make proof` looks for them, and show them to who runs a test."""
    line = json.dumps({"what": what, "figures": figures})
    print(line)  # noqa: T201, pytest keeps it
    where = os.environ.get("CHAPPE_FIGURES")
    if where is not None:
        with Path(where).open("a") as file:
            file.write(line + "\n")


def percentiles(name: str, times_s: Sequence[float]) -> dict[str, float]:
    """The middle, the worst of a hundred and the worst, in seconds."""
    ordered = sorted(times_s)
    if not ordered:
        return {}
    last = len(ordered) - 1
    places = {"p50": last // 2, "p99": min(last, round(last * 0.99)), "max": last}
    return {f"{name} {place}": round(ordered[at], 2) for place, at in places.items()}
