"""`chappe` on a machine whose clock is wrong: python -m tests.pipeline.skewed AHEAD_MS serve ..."""

from __future__ import annotations

import sys

from chappe.cli.main import main
from chappe.clock import SystemClock
from chappe.node import node


class SkewedClock(SystemClock):
    """The machine's clock, ahead of what it is."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def wall_us(self) -> int:
        return super().wall_us() + self.ahead_ms * 1000


if __name__ == "__main__":
    SkewedClock.ahead_ms = int(sys.argv.pop(1))
    # What a node takes its time from unless it is given another clock.
    node.SystemClock = SkewedClock  # type: ignore[misc]
    main()
