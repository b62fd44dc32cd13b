"""What a run is told: the promises that it measures against, and how long it waits for a word."""

from __future__ import annotations

from dataclasses import dataclass, fields

from chappe.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run; the same for all runs over one set of tables.

    Raises ConfigError for one that makes no sense.
    """

    # What is delivered later than this after it came to its first node is late.
    sla_ms: int = 1_000
    # A queue is there to let messages wait: what nobody was handed for this long is late.
    queue_sla_ms: int = 60_000
    # Lanes of one queue proceed apart from each other. Only when messages this much younger were
    # handed out is one that was not, and whose node never died, called lost.
    overtaken_ms: int = 3_600_000
    # Nodes tell late: segments are sealed, copied, moved. One that told nothing while others tell
    # of times this much later is dead.
    grace_ms: int = 120_000
    # A user who is back this soon after a session ended came back, rather than came.
    reconnect_ms: int = 60_000
    # What is told this much later than the latest that was told before is put aside. Nodes seal
    # files within seconds; a machine that is repaired, and its disk read then, may take days.
    watermark_ms: int = 7 * 86_400_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value <= 0:
                raise ConfigError(f"pipeline.{field.name}: {value} is not above 0")
