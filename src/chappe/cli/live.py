"""What a node tells, shown once, as JSON, or anew every so many seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import RenderableType
from rich.live import Live

from chappe.cli.options import console, print_json


def show(
    fetch: Callable[[], dict[str, Any]],
    view: Callable[[dict[str, Any]], RenderableType],
    *,
    watch_s: float,
    as_json: bool,
) -> None:
    """Show what is fetched, until interrupted if it is to be watched."""
    if as_json:
        print_json(fetch())
        return
    if watch_s <= 0:
        console.print(view(fetch()))
        return
    with Live(view(fetch()), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(watch_s)
            live.update(view(fetch()), refresh=True)
