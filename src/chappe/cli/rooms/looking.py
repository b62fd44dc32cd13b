"""`chappe rooms status`, `links` and `members`: how rooms do, as tables."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chappe.cli.live import show
from chappe.cli.queue.asker import Asker, asking
from chappe.errors import ConfigError

Watch = Annotated[float, typer.Option(help="Show it anew every so many seconds.")]


@asking
def status(asker: Asker, watch: Watch = 0.0) -> None:
    """Show the partitions, and who is proxy, broker and router, as the node sees them."""
    node = asker.node()
    show(
        lambda: node.get("/v1/rooms/status", **{"as": asker.as_}),
        status_view,
        watch_s=watch,
        as_json=asker.as_json,
    )


@asking
def links(
    asker: Asker,
    watch: Watch = 0.0,
    limit: Annotated[int, typer.Option(help="So many of each node, the worst first.")] = 100,
) -> None:
    """Show the links that probes went over: what arrived, and how long it took (R15)."""
    node = asker.node()
    show(
        lambda: node.get("/v1/rooms/links", **{"as": asker.as_, "limit": str(limit)}),
        links_view,
        watch_s=watch,
        as_json=asker.as_json,
    )


@asking
def members(
    asker: Asker,
    name: Annotated[str, typer.Argument(help="The room's name, with or without room: before it.")],
    n: Annotated[int, typer.Option("--n", "-n", help="Name them, if they are no more.")] = 0,
) -> None:
    """Tell how many are in a room, anywhere, and who if they are few."""
    room = name.removeprefix("room:")
    if not room:
        raise ConfigError("NAME: a room's name is not empty")
    path = f"/v1/rooms/{quote(room, safe='/')}/members"
    answer = asker.node().get(path, **{"as": asker.as_, "who": n})
    told = [f"{answer.get('n', 0):,} in room:{_plain(room)}"]
    told += [f"  {_plain(member)}" for member in answer.get("members") or ()]
    asker.tell(answer, "\n".join(told).replace("[", r"\["))


def status_view(found: dict[str, Any]) -> RenderableType:
    """The roles of rooms."""
    count, wanted = found["partitions"], found["wanted"]
    growing = f" -> {wanted}" if wanted > count else ""
    head = Text.assemble(
        (_plain(found["system"]), "bold"),
        f"  {count}{growing} partition{'s' if max(count, wanted) != 1 else ''}",
        f"  by {found['balance']}, as {_plain(found['node'])} sees it",
    )
    if found["independent_routers"]:
        head.append(f"  routers: {found['router_partitions']} partitions")
    own = _table("This node", "role", "id", "partition", "state", "load")
    for role in found["roles"]:
        load = ", ".join(f"{name} {count:,}" for name, count in role.get("load", {}).items())
        own.add_row(
            role["role"], str(role["id"]), _maybe(role.get("partition")), _state(role), Text(load)
        )
    others = _table(
        "All",
        "role",
        "partition",
        "id",
        "node",
        "at",
        "state",
        "answers",
        "success",
        "ms",
        "weight",
    )
    for replica in (*found["proxies"], *found["brokers"], *found["routers"]):
        others.add_row(*_replica(replica))
    return Group(head, own, others)


def _replica(replica: dict[str, Any]) -> list[RenderableType]:
    alive = {None: Text("-"), True: Text("yes", "green"), False: Text("no", "bold red")}
    return [
        replica["role"],
        _maybe(replica.get("partition")),
        str(replica["id"]),
        Text(_plain(replica["node"])),
        Text(_plain(f"{replica['host']}:{replica['port']}")),
        _state(replica),
        alive[replica.get("alive")],
        _maybe(replica.get("success"), ".3f"),
        _maybe(replica.get("round_trip_ms"), ".2f"),
        _maybe(replica.get("weight"), "g"),
    ]


def links_view(found: dict[str, Any]) -> RenderableType:
    """The links of rooms, as each node's probes found them."""
    title = f"Links, of whose probes at least {found['sla']:.2%} are to arrive"
    table = _table(
        title, "seen by", "from", "to", "arrived", "failed", "share", "p50 ms", "p99 ms", "alarms"
    )
    for node in found["nodes"]:
        name = Text(_plain(node["node"]))
        if not node["ok"]:
            table.add_row(name, Text("did not answer", "red"), *[""] * 7)
        for link in node["links"]:
            table.add_row(
                name,
                Text(_end(link["tail"])),
                Text(_end(link["head"])),
                f"{link['arrived']:,}",
                Text(f"{link['failed']:,}", "bold red" if link["failed"] else ""),
                Text(f"{link['share']:.4f}", "" if link["ok"] else "bold red"),
                _maybe(link["p50_ms"], ".2f"),
                _maybe(link["p99_ms"], ".2f"),
                Text(", ".join(link["alarms"]), "bold red"),
            )
    return table


def _end(end: dict[str, Any]) -> str:
    partition = f" of {end['partition']}" if end.get("partition") is not None else ""
    return _plain(f"{end['role']}{partition} {end['node']}")


def _state(of: dict[str, Any]) -> Text:
    return Text(of["state"], "green" if of["state"] == "running" else "yellow")


def _maybe(value: float | None, form: str = "") -> str:
    return "-" if value is None else format(value, form)


def _plain(value: object) -> str:
    """Text without anything that a terminal would take for a command."""
    return ascii(str(value))[1:-1]


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
