"""`chappe status`: how a node is doing, as a table."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from chappe.cli.api import NodeApi
from chappe.cli.live import show
from chappe.cli.options import HTTP, As, Ca, Http, Json, TokenFile, api


def status(
    watch: Annotated[float, typer.Option(help="Show it anew every so many seconds.")] = 0.0,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Show a node's sessions, topics and counters."""
    node = api(http, token_file, ca, os.environ.get("CHAPPE_TOKEN"))
    show(lambda: _fetch(node, as_), _view, watch_s=watch, as_json=as_json)


def _fetch(node: NodeApi, as_: str) -> dict[str, Any]:
    return node.get("/v1/status", **{"as": as_})


def _view(status: dict[str, Any]) -> Group:
    uptime = timedelta(seconds=int(status["uptime_s"]))
    state = ("draining", "bold yellow") if status["draining"] else ("serving", "bold green")
    head = Text.assemble(f"{status['node']}  chappe {status['version']}  ", state, f"  up {uptime}")
    where = Table("edge", "address", "sessions", title="Edges", title_justify="left")
    sessions = dict(status["sessions"])
    for edge, address in status["addresses"].items():
        where.add_row(edge, address, str(sessions.pop(edge, 0)))
    for edge, count in sessions.items():
        where.add_row(edge, "", str(count))
    what = Table("what", "count", title="Hub", title_justify="left")
    for name in ("apps", "endpoints", "topics", "rooms", "held_bytes"):
        what.add_row(name.replace("_", " "), f"{status[name]:,}")
    for group, counts in status["counters"].items():
        for name, count in sorted(counts.items()):
            what.add_row(f"{group}: {name}", f"{count:,}")
    return Group(head, where, what)
