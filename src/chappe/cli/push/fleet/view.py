"""What a fleet does, for a person's eyes."""

from __future__ import annotations

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from chappe.cli.push.fleet.tally import Histogram, Tally
from chappe.cli.push.tables import plain

# Of errors, the most frequent.
_ERRORS_SHOWN = 5


def fleet_view(tally: Tally, elapsed_s: float, notes_per_s: float) -> RenderableType:
    """Counts and percentiles, as they are now."""
    table = Table.grid(padding=(0, 2))
    table.add_row("logged in", _counted(tally), ProgressBar(tally.devices, tally.logged_in, 30))
    table.add_row("connected", f"{tally.connected:,}", f"lost {tally.lost:,}")
    table.add_row("notes", f"{tally.notes:,}", f"{notes_per_s:,.0f}/s, {tally.waited:,} had waited")
    table.add_row("acks", f"{tally.acks:,}", f"{tally.retractions:,} taken back")
    table.add_row("latency", *_times(tally.latency))
    table.add_row("login", *_times(tally.login))
    used = f"{tally.cpu_s:.1f} s of CPU, {tally.rss_bytes / 2**20:,.0f} MB"
    table.add_row("since", f"{elapsed_s:.0f} s", used)
    worst = sorted(tally.errors.items(), key=lambda each: -each[1])
    for what, count in worst[:_ERRORS_SHOWN]:
        table.add_row(Text("error", "red"), f"{count:,}", Text(plain(what)))
    return table


def _counted(tally: Tally) -> str:
    return f"{tally.logged_in:,} of {tally.devices:,}"


def _times(histogram: Histogram) -> tuple[str, str]:
    told = histogram.summary()
    if told["p50"] is None:
        return "-", ""
    first, *rest = (f"{name} {value:,.1f} ms" for name, value in told.items())
    return first, ", ".join(rest)
