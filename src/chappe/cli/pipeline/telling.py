"""What runs did, on standard output: for people in the end, for machines as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chappe.cli.options import console, print_json
from chappe.cli.pipeline.stages import Stages
from chappe.node.options import EVENT_LOGS
from chappe.node.sealing import Sealed
from chappe.pipeline.job import NOTHING, Counts

_WORDS = {
    "files": "files taken",
    "events": "events in them",
    "quarantined": "rows put aside",
    "hours": "hours that they touch",
    "paths": "messages put together anew",
}


class Telling:
    """Adds up what runs did. With `each`, JSON has an object for each of them, as it ends."""

    def __init__(
        self, events: list[Path], tables: Path, stages: Stages, *, as_json: bool, each: bool
    ) -> None:
        self._events = events
        self._tables = tables
        self._stages = stages
        self._as_json = as_json
        self._each = each
        self._every = NOTHING
        self._told = False
        # Places in journals that could not be read, and which could not be copied.
        self._damaged = 0
        self._unsealed: dict[str, str] = {}

    def done(self, counts: Counts) -> None:
        """Take note of what a run did."""
        self._every = self._every.plus(counts)
        if self._as_json and self._each:
            self._print_json(counts)
            self._told = True

    def sealed(self, folder: Path, found: Sealed) -> None:
        """Take note of what the journals of nodes that are gone were like, and tell of it once."""
        self._damaged += found.damaged
        if found.damaged:
            self._stages.noted(f"{folder}: {found.damaged} places in journals could not be read")
        for node, reason in found.failed.items():
            log = str(folder / EVENT_LOGS / node)
            if self._unsealed.get(log) != reason:
                self._unsealed[log] = reason
                self._stages.noted(f"{log} could not be copied: {reason}")

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Tell in the end of the block, also when it is interrupted and something was done."""
        try:
            yield
        except KeyboardInterrupt:
            if any(self._every):
                self._tell()
            if not self._as_json:
                console.print("interrupted: the next run goes on from here", highlight=False)
            raise
        self._tell()

    def _tell(self) -> None:
        if not self._as_json:
            self._tell_people()
        elif not self._told:
            self._print_json(self._every)

    def _print_json(self, counts: Counts) -> None:
        journals = {"damaged": self._damaged, "unsealed": self._unsealed}
        seconds = self._stages.since()
        print_json({"ok": True, **counts._asdict(), **journals, "seconds": seconds})

    def _tell_people(self) -> None:
        counts = self._every._asdict()
        if not any(self._every) and not (self._tables / "paths").is_dir():
            folders = ", ".join(map(str, self._events))
            console.print(
                f"nothing new: no events in {folders} yet; a node that runs writes them there "
                "within seconds (events.seal_s), unless events.enabled is false",
                highlight=False,
                soft_wrap=True,
            )
            return
        if counts["spoiled"]:
            console.print(
                f"{counts['spoiled']} files could not be read, and are taken no more: see the "
                "table spoiled",
                highlight=False,
            )
        if not counts["files"]:
            console.print(f"nothing new; {self._tables} stays as it is", highlight=False)
            return
        for name, words in _WORDS.items():
            console.print(f"{counts[name]:>12,}  {words}", highlight=False)
        look = f"look at them: chappe report --tables {self._tables} --out report.html"
        console.print(f"{'':>12}  {look}", highlight=False, soft_wrap=True)
