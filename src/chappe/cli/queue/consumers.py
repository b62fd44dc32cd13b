"""`chappe queue register` and `unregister`."""

from __future__ import annotations

from typing import Annotated

import typer

from chappe.cli.queue.asker import Asker, asking
from chappe.cli.queue.remote import Group, Headers, Name, Tags, parse_headers
from chappe.errors import ConfigError


@asking
def register(
    asker: Asker,
    name: Name,
    consumer: Annotated[str, typer.Argument(help="The consumer's name.")],
    group: Group = None,
    tag: Tags = None,
    header: Headers = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin with what is sent from now on.")
    ] = False,
) -> None:
    """Register a consumer: from now on the queue keeps messages for it, or for its group."""
    queue = asker.queue(name)
    headers = parse_headers(header)
    answer = queue.post(
        "consumers", name=consumer, group=group, tags=tag, headers=headers, new=new or None
    )
    asker.tell(answer, f"[green]ok[/] {consumer} consumes {queue.address}")


@asking
def unregister(
    asker: Asker,
    name: Name,
    consumer: Annotated[
        str | None, typer.Argument(help="The consumer; without it, the whole --group.")
    ] = None,
    group: Group = None,
) -> None:
    """Unregister a consumer; or give up a group, and what only it still waits for."""
    queue = asker.queue(name)
    if consumer:
        answer = queue.delete("consumers", consumer, group=group)
    elif group:
        answer = queue.delete("groups", group)
    else:
        raise ConfigError("CONSUMER: missing; name a consumer, or a group with --group")
    gone = consumer or f"group {group}"
    asker.tell(answer, f"[green]ok[/] {gone} left {queue.address}")
