"""`chappe rooms status`, `links` and `members`: how rooms do, as tables."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chappe.address import KINDS
from chappe.cli.live import show
from chappe.cli.queue.asker import Asker, asking
from chappe.errors import BadRequest, ConfigError

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
    room = _room(name)
    if n < 0:
        raise ConfigError("-n: must be 0 or above")
    path = f"/v1/rooms/{quote(room, safe='/')}/members"
    try:
        answer = asker.node().get(path, **{"as": asker.as_, "who": n})
    except BadRequest as error:
        # The node's words for it.
        field, _, rest = error.reason.partition(": ")
        if field not in ("n", "who"):
            raise
        raise ConfigError(f"-n: {rest}") from None
    told = [f"{answer.get('n', 0):,} in room:{_plain(room)}"]
    told += [f"  {_plain(member)}" for member in answer.get("members") or ()]
    asker.tell(answer, "\n".join(told).replace("[", r"\["))


def _room(name: str) -> str:
    """A room's name; raises ConfigError for an address of another kind."""
    kind, colon, _ = name.partition(":")
    if colon and kind in KINDS and kind != "room":
        raise ConfigError(f"NAME: {kind}: is not a room's; say room:{name} if it is called so")
    room = name.removeprefix("room:")
    if not room:
        raise ConfigError("NAME: a room's name is not empty")
    return room


def status_view(found: dict[str, Any]) -> RenderableType:
    """The roles of rooms."""
    count, wanted = found["partitions"], found["wanted"]
    growing = f" -> {wanted}" if wanted > count else ""
    replicas = (*found["proxies"], *found["brokers"], *found["routers"])
    alone = not any(replica["port"] for replica in replicas)
    seer = "of a node that is alone" if alone else f"as {_plain(found['node'])} sees it"
    head = Text.assemble(
        (_plain(found["system"]), "bold"),
        f"  {count}{growing} partition{'s' if max(count, wanted) != 1 else ''}",
        f"  by {found['balance']}, {seer}",
    )
    if found["independent_routers"]:
        head.append(f"  routers: {found['router_partitions']} partitions")
    own = _table("This node", "role", "id", "state", "load")
    for role in found["roles"]:
        load = ", ".join(f"{name} {count:,}" for name, count in role.get("load", {}).items())
        own.add_row(_role(role), str(role.get("id", "-")), _state(role), Text(load))
    others = _table("All", "role", "id", "node", "state", "ms", "weight")
    for replica in replicas:
        others.add_row(*_replica(replica))
    return Group(head, own, others)


def _replica(replica: dict[str, Any]) -> list[RenderableType]:
    partition = replica.get("partition")
    return [
        replica["role"] if partition is None else _two(replica["role"], f"of {partition}"),
        str(replica["id"]),
        _where(replica),
        Text.assemble(_state(replica), "\n", _answers(replica)),
        _maybe(replica.get("round_trip_ms"), ".2f"),
        _maybe(replica.get("weight"), "g"),
    ]


def _where(replica: dict[str, Any]) -> Text:
    """Its node, and where that is reached; one that is alone has neither name nor port."""
    if not replica["port"]:
        return Text("this one")
    return _two(replica["node"], f"{replica['host']}:{replica['port']}")


def _answers(replica: dict[str, Any]) -> Text:
    """Whether it answers whoever was asked for this, and how many questions of a hundred."""
    alive = replica.get("alive")
    if alive is None:
        return Text("not asked", "dim")
    share = f" {replica['success']:.0%}" if replica.get("success") is not None else ""
    return Text(f"heard{share}", "green") if alive else Text(f"silent{share}", "bold red")


def _role(of: dict[str, Any]) -> str:
    partition = of.get("partition")
    return str(of["role"]) if partition is None else f"{of['role']} of {partition}"


def links_view(found: dict[str, Any]) -> RenderableType:
    """The links of rooms, as each node's probes found them."""
    head = Text(f"Links, of whose probes at least {found['sla']:.2%} are to arrive")
    return Group(head, *(_links_of(node) for node in found["nodes"]))


def _links_of(node: dict[str, Any]) -> RenderableType:
    title = f"Seen by {_plain(node['node'])}"
    if not node["ok"]:
        return Text(f"{title}: it did not answer", "red")
    if not node["links"]:
        return Text(f"{title}: no probe yet", "dim")
    table = _table(title, "from", "to", "lost", "arrived", "p50 ms", "p99 ms")
    for link in node["links"]:
        tail, to = link["tail"], link["head"]
        tried = link["arrived"] + link["failed"]
        table.add_row(
            _two(_role(tail), tail["node"]),
            _two(_role(to), to["node"]),
            f"{link['failed']:,} of {tried:,}" if tried else "-",
            _share(link),
            _maybe(link["p50_ms"], ".2f"),
            _maybe(link["p99_ms"], ".2f"),
        )
    return table


def _share(link: dict[str, Any]) -> Text:
    """What share arrived, and which alarms there are about it."""
    tried = link["arrived"] + link["failed"]
    share = Text(f"{link['share']:.2%}" if tried else "-", "" if link["ok"] else "bold red")
    for alarm in link["alarms"]:
        share.append(f"\nalarm: {alarm}", "bold red")
    return share


def _two(first: object, second: object) -> Text:
    """Two lines, so that both fit into a narrow terminal."""
    return Text.assemble(_plain(first), "\n", (_plain(second), "dim"))


def _state(of: dict[str, Any]) -> Text:
    return Text(of["state"], "green" if of["state"] == "running" else "yellow")


def _maybe(value: float | None, form: str = "") -> str:
    return "-" if value is None else format(value, form)


def _plain(value: object) -> str:
    """Text without anything that a terminal would take for a command."""
    return ascii(str(value))[1:-1]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for column in columns:
        # Half a name is none; and an id is to be copied, which one of two lines is not.
        table.add_column(column, overflow="fold", no_wrap=column == "id")
    return table
