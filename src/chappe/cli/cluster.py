"""`chappe cluster`: the nodes, their links and who is where, as tables that live."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from chappe.cli.api import NodeApi
from chappe.cli.live import show
from chappe.cli.options import HTTP, As, Ca, Http, Json, TokenFile, api


def cluster(
    watch: Annotated[float, typer.Option(help="Show it anew every so many seconds.")] = 0.0,
    routes: Annotated[int, typer.Option(help="Show on which nodes so many users are.")] = 0,
    as_: As = "",
    http: Http = HTTP,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Show the nodes of a cluster, their links, endpoints and routes."""
    node = api(http, token_file, ca, os.environ.get("CHAPPE_TOKEN"))
    show(lambda: _fetch(node, as_, routes), _view, watch_s=watch, as_json=as_json)


def _fetch(node: NodeApi, as_: str, routes: int) -> dict[str, Any]:
    found: dict[str, Any] = {"nodes": node.get("/v1/nodes", **{"as": as_})["nodes"]}
    if routes > 0:
        page = node.get("/v1/routes", **{"as": as_, "limit": str(min(routes, 1000))})
        found["routes"] = page["routes"]
    return found


def _view(found: dict[str, Any]) -> Group:
    parts: list[Table] = [_nodes(found["nodes"]), _links(found["nodes"])]
    if "routes" in found:
        parts.append(_routes(found["routes"]))
    return Group(*parts)


def _nodes(nodes: list[dict[str, Any]]) -> Table:
    columns = ("node", "state", "sessions", "endpoints", "topics", "routes", "watched", "links")
    table = _table(f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}", *columns)
    for node in nodes:
        state = Text("up", "green") if node["ok"] else Text("does not answer", "bold red")
        counts = (node[name] for name in columns[2:-1])
        table.add_row(node["name"], state, *(f"{n:,}" for n in counts), str(len(node["links"])))
    return table


def _links(nodes: list[dict[str, Any]]) -> Table:
    columns = ("link", "up", "trip", "clock", "in", "out", "waits", "due")
    table = _table("Links", *columns)
    for node in nodes:
        for link in node["links"]:
            table.add_row(
                f"{node['name']} > {link['peer']}",
                str(timedelta(seconds=int(link["up_s"]))),
                _ms(link["round_trip_ms"]),
                _ms(link["clock_offset_ms"]),
                _bytes(link["bytes_in"]),
                _bytes(link["bytes_out"]),
                _bytes(link["waiting_bytes"]),
                f"{link['pending']:,}",
            )
    return table


def _routes(routes: list[dict[str, Any]]) -> Table:
    table = _table("Routes", "endpoint", "nodes")
    for route in routes:
        table.add_row(route["address"], ", ".join(route["nodes"]))
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, no_wrap=name != "nodes")
    return table


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} ms"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
