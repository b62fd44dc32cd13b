"""`chappe push topics` and `topic`: who gets what."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from chappe.cli.options import console, print_json
from chappe.cli.push.asker import AppAsker, asking
from chappe.cli.push.tables import members_view, topics_table
from chappe.cli.push.which import Client, Device, which
from chappe.errors import ConfigError

topic = typer.Typer(help="One topic: subscribe, unsubscribe, members.", no_args_is_help=True)
_PAGE_MAX = 1000
Topics = Annotated[list[str], typer.Argument(help="Names of topics.")]
Count = Annotated[int, typer.Option("--n", "-n", help="So many.")]
After = Annotated[str | None, typer.Option(help="Go on from there.")]


@asking
def topics(asker: AppAsker, count: Count = 100, after: After = None) -> None:
    """List topics, and how many subscribe to each."""
    answer = asker.node().get("/v1/push/topics", after=after, limit=_checked(count))
    if asker.as_json:
        print_json(answer)
    else:
        console.print(topics_table(answer))


@topic.command("subscribe")
@asking
def subscribe(
    asker: AppAsker, topics: Topics, client: Client = None, device: Device = None
) -> None:
    """Subscribe a device to topics."""
    body = {"topics": topics, **which(client, device)}
    answer = asker.node().post("/v1/push/topics/subscribe", body)
    asker.tell(answer, f"[green]ok[/] {answer['client']} gets what is sent to them")


@topic.command("unsubscribe")
@asking
def unsubscribe(
    asker: AppAsker, topics: Topics, client: Client = None, device: Device = None
) -> None:
    """Unsubscribe a device from topics."""
    body = {"topics": topics, **which(client, device)}
    answer = asker.node().post("/v1/push/topics/unsubscribe", body)
    asker.tell(answer, f"[green]ok[/] {answer['client']} gets them no more")


@topic.command("members")
@asking
def members(
    asker: AppAsker,
    name: Annotated[str, typer.Argument(help="The topic.")],
    count: Count = 100,
    after: After = None,
) -> None:
    """Tell how many subscribe to a topic, and who."""
    path = f"/v1/push/topics/{quote(name, safe='/')}/clients"
    answer = asker.node().get(path, after=after, limit=_checked(count))
    if asker.as_json:
        print_json(answer)
    else:
        console.print(members_view(answer))


def _checked(count: int) -> int:
    if not 1 <= count <= _PAGE_MAX:
        raise ConfigError(f"--n: must be between 1 and {_PAGE_MAX}")
    return count
