"""Queues and their messages for a person's eyes."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def queues_table(found: dict[str, Any]) -> RenderableType:
    """All queues, a row each."""
    queues = found["queues"]
    table = Table(
        title=f"{len(queues)} queue{'s' if len(queues) != 1 else ''}",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1),
    )
    table.add_column("queue", overflow="fold")
    for name in ("depth", "dead", "delayed", "lanes"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("lag", "stored", "owner"):
        table.add_column(name, overflow="fold")
    for queue in queues:
        name = _name(queue)
        if "error" in queue:
            told = Text(f"{queue['error']}: {queue['reason']}", "red")
            table.add_row(Text(name), "", "", "", "", told, "", "")
            continue
        dead = Text(f"{queue['dead']:,}", "bold red" if queue["dead"] else "")
        table.add_row(
            Text(name),
            f"{queue['depth']:,}",
            dead,
            f"{queue['delayed']:,}",
            str(len(queue["lanes"])),
            Text(", ".join(_lag(group) for group in queue["groups"])),
            queue["stored"],
            Text(queue.get("broker", "")),
        )
    return table


def queue_view(figures: dict[str, Any]) -> RenderableType:
    """One queue, with its lanes, groups and options."""
    head = Text.assemble(
        (_name(figures), "bold"),
        f"  {figures['stored']}",
        f"  on {figures['broker']}" if figures.get("broker") else "",
        f"\n{figures['depth']:,} waiting ({figures['bytes']:,} bytes)",
        f", {figures['delayed']:,} delayed, {figures['dead']:,} dead",
    )
    lanes = _table("Lanes", "lane", "head", "waiting")
    for lane in figures["lanes"]:
        lanes.add_row(str(lane["lane"]), f"{lane['head']:,}", f"{lane['depth']:,}")
    groups = _table("Groups", "group", "lag", "in hand", "in line", "consumers", "wants")
    for group in figures["groups"]:
        groups.add_row(
            Text(group["group"] or "(none)"),
            f"{group['lag']:,}",
            f"{group['in_hand']:,}",
            f"{group['waiting']:,}",
            Text(", ".join(group["consumers"]) or ("awaited" if group["expected"] else "")),
            Text(_wants(group)),
        )
    options = _table("Options", "option", "value")
    for name, value in figures["options"].items():
        options.add_row(name, Text(json.dumps(value)))
    return Group(head, lanes, groups, options)


def message_line(message: dict[str, Any]) -> Text:
    """One message; a stranger's text is shown as text, whatever it holds."""
    at = datetime.fromtimestamp(message["ts"] / 1000).strftime("%Y-%m-%d %H:%M:%S")
    line = Text.assemble((at, "dim"), " ", (str(message["message"]), "cyan"))
    for name in ("num", "key", "attempt"):
        if message.get(name) is not None:
            line.append(f" {name}={_plain(message[name])}")
    if message.get("due_ms") is not None:
        due = datetime.fromtimestamp(message["due_ms"] / 1000).strftime("%H:%M:%S")
        line.append(f" due={due}", "yellow")
    if death := message.get("death"):
        why = f" {_plain(death['reason'])} (group {_plain(death['group'])!r}, "
        line.append(why + f"{death['attempts']} attempts)", "red")
    line.append("  " + _data(message))
    return line


def message_view(message: dict[str, Any]) -> Text:
    """All that is known of one message."""
    return Text(json.dumps(message, indent=2, ensure_ascii=True))


def _name(queue: dict[str, Any]) -> str:
    return _plain(queue["queue"].removeprefix("queue:"))


def _lag(group: dict[str, Any]) -> str:
    return f"{_plain(group['group'])}: {group['lag']:,}" if group["group"] else f"{group['lag']:,}"


def _wants(group: dict[str, Any]) -> str:
    tags = [f"tag {tag}" for tag in group["tags"] or ()]
    return ", ".join(tags + [f"{name}={value}" for name, value in (group["headers"] or {}).items()])


def _data(message: dict[str, Any]) -> str:
    if message.get("data64") is not None:
        return f"{len(base64.b64decode(message['data64']))} bytes"
    return json.dumps(message.get("data"), ensure_ascii=True)


def _plain(value: Any) -> str:
    """Text without anything that a terminal would take for a command."""
    return ascii(str(value))[1:-1]


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
