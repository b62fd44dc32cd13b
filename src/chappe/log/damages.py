"""Damages: what of a journal's files is no batch, as far as it was seen."""

from __future__ import annotations

import structlog

from chappe.log.segment import Damage

log = structlog.get_logger()

DAMAGES_MAX = 1000


class Damages:
    """Each place is told of once, and a bounded number of them is kept."""

    def __init__(self) -> None:
        self.all: list[Damage] = []

    def report(self, damage: Damage) -> None:
        """Note a place, and log it."""
        if damage in self.all:
            return
        log.warning(
            "journal damaged",
            segment=damage.segment,
            offset=damage.offset,
            end=damage.end,
            reason=damage.reason,
        )
        if len(self.all) < DAMAGES_MAX:
            self.all.append(damage)
