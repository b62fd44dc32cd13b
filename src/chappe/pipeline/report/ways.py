"""Some messages' whole ways: what the other sections count, seen once from close by."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
from pyarrow.dataset import dataset
from rich.console import Console

from chappe.pipeline.audit import OPEN
from chappe.pipeline.kinds import PUSH, TRAVELLING
from chappe.pipeline.report.audit import Audit
from chappe.pipeline.report.chart import Section
from chappe.pipeline.report.gold import Gold
from chappe.pipeline.table import Table, read
from chappe.pipeline.tree import tree_of

# However many messages there are, this many are looked at for one that is worth showing.
_LOOKED_AT: Final = 1024
_BATCH: Final = 512
_WIDTH: Final = 400
_FAMILIES: Final = {
    **{family: f"a message to a {family}" for family in TRAVELLING},
    "send": "a message to a user",
    "queue": "a message of a queue",
    "request": "a request",
    PUSH: "a note to devices",
}


def section(gold: Gold, audit: Audit) -> Section:
    """The section of samples: one of each verdict, and the longest way of each family."""
    made = Section(
        "Messages",
        "The whole way of some messages: every hop below the one that it came from, with the time "
        "since the message was born. `chappe trace ID` shows this of any message.",
        "No message's way is kept: none was recorded, or all were forgotten (pipeline expire).",
    )
    for verdict in audit.samples.values():
        for path in _judged(gold.tables, verdict):
            what = _FAMILIES.get(path["family"], "a message")
            made.texts.append((f"{verdict['verdict']}: {what}", _drawn(path, [verdict])))
    for family, path in _longest(gold).items():
        made.texts.append((f"{_FAMILIES[family]}, one with many hops", _drawn(path, [])))
    return made


def _judged(tables: Path, verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """The path of a message that the audit names, if it is kept."""
    key = "message" if verdict["label"] is None else "label"
    wanted: list[tuple[str, str, Any]] = [(key, "=", verdict[key])]
    if verdict["hour"] != OPEN:
        wanted.append(("hour", "=", verdict["hour"]))
    found: list[dict[str, Any]] = read(tables, "paths", filters=wanted).slice(0, 1).to_pylist()
    return found


def _longest(gold: Gold) -> dict[str, dict[str, Any]]:
    """Of some messages of the last hour, the one with the most hops of each family."""
    found: dict[str, dict[str, Any]] = {}
    files = Table(gold.tables, "paths").files(sorted(gold.hours("paths"))[-1:])
    for family in _FAMILIES if files else ():
        # Read ahead no further than is looked at: an hour may have millions of them.
        rows = (
            dataset(files, format="parquet")
            .head(
                _LOOKED_AT,
                filter=pc.field("family") == family,
                batch_size=_BATCH,
                batch_readahead=1,
                fragment_readahead=1,
            )
            .to_pylist()
        )
        if rows:
            found[family] = max(rows, key=lambda path: len(path["hops"] or ()))
    return found


def _drawn(path: dict[str, Any], verdicts: list[dict[str, Any]]) -> str:
    """A path as `chappe trace` shows it, without colours."""
    told = StringIO()
    Console(file=told, width=_WIDTH, emoji=False, color_system=None).print(tree_of(path, verdicts))
    return "\n".join(line.rstrip() for line in told.getvalue().splitlines())
