"""Push for a person's eyes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

_LIMITS = {
    "sends_per_s": ("notes a second", 1000.0),
    "devices_max": ("devices", 0),
    "device_notes_per_h": ("notes a device and hour", 0),
}
_COUNTS = ("aimed", "sent", "arrived", "clicked", "offline", "dropped")
# Those of P9, which fit on a line.
_OF_EACH = _COUNTS[:-1]


def apps_table(apps: list[dict[str, Any]]) -> RenderableType:
    """All apps, a row each."""
    table = _table(f"{_count(len(apps), 'app')}", "key", "name", "devices come", "state", "made")
    for app in apps:
        table.add_row(
            app["key"], Text(plain(app["name"])), _door(app), _state(app), _at(app["created_ms"])
        )
    return table


def app_view(app: dict[str, Any]) -> RenderableType:
    """One app, with its limits."""
    head = Text.assemble(
        (plain(app["name"]), "bold"), f"  {app['key']}  devices come {_door(app)}  ", _state(app)
    )
    limits = _table("Limits", "of", "at most")
    for name, (words, usual) in _LIMITS.items():
        value = app["limits"].get(name, usual)
        limits.add_row(words, f"{value:,g}" if value else "no limit")
    return Group(head, limits)


def ticket_view(ticket: dict[str, Any]) -> Text:
    """What a device needs to connect."""
    lines = [f"{name:<9}{ticket[name]}" for name in ("client", "token", "comet", "identity")]
    return Text("\n".join([*lines, f"{'until':<9}{_at(ticket['expires_ms'])}"]))


def clients_table(found: dict[str, Any]) -> RenderableType:
    """The devices of a user."""
    clients = found["clients"]
    title = f"{_count(len(clients), 'device')} of {plain(found['user'])}"
    table = _table(title, "client", "device")
    for client in clients:
        table.add_row(client["client"], Text(plain(client["device"])))
    return table


def client_view(seen: dict[str, Any]) -> Text:
    """One device."""
    client, comet = seen["client"], seen["comet"]
    topics = ", ".join(map(plain, seen["topics"])) or "none"
    return Text.assemble(
        (client["client"], "bold"),
        f"  device {plain(client['device'])}",
        f"  of {plain(client['user'])}" if client.get("user") else "  nobody's",
        "\n",
        ("offline", "yellow") if comet is None else (f"on comet {comet}", "green"),
        f"  topics: {topics}",
    )


def topics_table(found: dict[str, Any]) -> RenderableType:
    """Topics, a row each."""
    table = _table(_count(len(found["topics"]), "topic"), "topic", "subscribers")
    table.columns[1].justify = "right"
    for topic in found["topics"]:
        table.add_row(Text(plain(topic["topic"])), f"{topic['subscribers']:,}")
    return _going_on(table, found, "--after")


def members_view(found: dict[str, Any]) -> RenderableType:
    """Who subscribes to a topic."""
    head = Text(f"{found['subscribers']:,} subscribe to {plain(found['topic'])}")
    return _going_on(Group(head, *map(Text, found["clients"])), found, "--after")


def jobs_table(found: dict[str, Any]) -> RenderableType:
    """Jobs, a row each: how many, and what share."""
    jobs = found["jobs"]
    table = _table(_count(len(jobs), "job"), "job", "for")
    for name in _OF_EACH:
        table.add_column(name, justify="right", no_wrap=True)
    for job in jobs:
        made = (
            ("taken back", "yellow") if job["cancelled_ms"] else (_at(job["created_ms"])[5:], "dim")
        )
        aim = f"{job['aim']} {plain(job['target'])}"
        named = (f"\n{plain(job['name'])}", "dim") if job["name"] else ""
        counts = (_share(job, name) for name in _OF_EACH)
        table.add_row(Text.assemble(job["job"], "\n", made), Text.assemble(aim, named), *counts)
    table.columns[0].no_wrap = True
    return _going_on(table, found, "--before")


def job_view(found: dict[str, Any]) -> RenderableType:
    """One job."""
    job = found["job"]
    head = Text.assemble(
        (job["job"], "bold"),
        f"  note {job['note']}  for {job['aim']} {plain(job['target'])}",
        f"  {plain(job['name'])}" if job["name"] else "",
        f"\nsent {_at(job['created_ms'])}, until {_at(job['expires_ms'])}",
        (f", taken back {_at(job['cancelled_ms'])}" if job["cancelled_ms"] else "", "yellow"),
    )
    table = _table("", *_COUNTS)
    table.add_row(*(_share(job, name) for name in _COUNTS))
    return Group(head, table)


def plain(value: object) -> str:
    """Text without anything that a terminal would take for a command."""
    return "".join(
        each if each.isprintable() and each != "\\" else ascii(each)[1:-1] for each in str(value)
    )


def unmarked(value: object) -> str:
    """The same for text in which rich looks for marks."""
    return plain(value).replace("[", r"\[")


def _share(job: dict[str, Any], name: str) -> Text:
    """How many, and of what is aimed at which share; of clicks, of what arrived."""
    share = job["ratios"].get(name)
    told = Text(f"{job[name]:,}")
    if share is not None and job[name]:
        told.append(f"\n{share:.1%}", "dim")
    return told


def _going_on(view: RenderableType, found: dict[str, Any], option: str) -> RenderableType:
    if found["next"] is None:
        return view
    return Group(view, Text(f"more with {option} {plain(found['next'])}", "dim"))


def _door(app: dict[str, Any]) -> str:
    return "by themselves" if app["open"] else "by its server"


def _state(app: dict[str, Any]) -> Text:
    return Text("on", "green") if app["enabled"] else Text("off", "bold red")


def _at(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _table(title: str, *columns: str) -> Table:
    name = Text(title) if title else None
    table = Table(title=name, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    for column in columns:
        # Half a name is none.
        table.add_column(column, overflow="fold")
    return table
