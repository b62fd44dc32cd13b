"""What a node tells, shown once, as JSON, or anew every so many seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import RenderableType
from rich.live import Live

from chappe.cli.options import console, print_json
from chappe.errors import ConfigError

_WATCH_S_MAX = 86_400.0


def show(
    fetch: Callable[[], dict[str, Any]],
    view: Callable[[dict[str, Any]], RenderableType],
    *,
    watch_s: float,
    as_json: bool,
) -> None:
    """Show what is fetched, until interrupted if it is to be watched; raises ConfigError."""
    # So written, it refuses NaN as well.
    if not 0 <= watch_s <= _WATCH_S_MAX:
        raise ConfigError(f"--watch: must be between 0 and {_WATCH_S_MAX:.0f}")
    if as_json:
        print_json(fetch())
        return
    if watch_s == 0:
        console.print(view(fetch()))
        return
    with Live(view(fetch()), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(watch_s)
            live.update(view(fetch()), refresh=True)
