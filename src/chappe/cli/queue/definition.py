"""`chappe queue create`, `list`, `show`, `delete`, `promote`."""

from __future__ import annotations

import math
from typing import Annotated, Any
from urllib.parse import quote

import typer

from chappe.cli.api import NodeApi
from chappe.cli.live import show
from chappe.cli.queue.asker import Asker, asking
from chappe.cli.queue.remote import Name
from chappe.cli.queue.tables import queue_view, queues_table
from chappe.errors import ConfigError

_PAGE = 1000
Watch = Annotated[float, typer.Option(help="Show it anew every so many seconds.")]
_Int = Annotated[int | None, typer.Option()]


def _finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """Refuse what JSON has no number for: the node could not say which option it was."""
    if value is not None and not math.isfinite(value):
        raise ConfigError(f"{option.opts[0]}: {value} is no number of seconds")
    return value


_Float = Annotated[float | None, typer.Option(callback=_finite)]


@asking
def create(
    asker: Asker,
    name: Name,
    lanes: Annotated[int | None, typer.Option(help="So many lanes; order holds in each.")] = None,
    volatile: Annotated[
        bool | None, typer.Option("--volatile/--durable", help="In memory only.")
    ] = None,
    ordered: Annotated[
        bool | None,
        typer.Option("--ordered/--unordered", help="A lane's next only after ACK of the one."),
    ] = None,
    attempts_max: _Int = None,
    ack_timeout_s: _Float = None,
    retry_s: _Float = None,
    retry_max_s: _Float = None,
    depth_max: _Int = None,
    bytes_max: _Int = None,
    consumer: Annotated[
        list[str] | None, typer.Option(help="Messages are for this one; may be repeated.")
    ] = None,
    await_s: _Float = None,
    push_interval_s: _Float = None,
    expire_s: _Float = None,
) -> None:
    """Make a queue, durable unless said otherwise; or change the options of one."""
    queue = asker.queue(name)
    answer = queue.put(
        lanes=lanes,
        volatile=volatile,
        ordered=ordered,
        attempts_max=attempts_max,
        ack_timeout_s=ack_timeout_s,
        retry_s=retry_s,
        retry_max_s=retry_max_s,
        depth_max=depth_max,
        bytes_max=bytes_max,
        consumers=consumer,
        await_s=await_s,
        push_interval_s=push_interval_s,
        expire_s=expire_s,
    )
    given = answer.get("lanes") or []
    told = f", lane{'s' if len(given) != 1 else ''} {', '.join(map(str, given))}" if given else ""
    asker.tell(answer, f"[green]ok[/] {queue.address}{told}")


@asking
def list_(
    asker: Asker,
    prefix: Annotated[str, typer.Option(help="Only those whose names begin so.")] = "",
    watch: Watch = 0.0,
) -> None:
    """List queues: what waits, how far each group is behind, dead letters, where they live."""
    node = asker.node()
    show(lambda: _all(node, asker.as_, prefix), queues_table, watch_s=watch, as_json=asker.as_json)


@asking
def show_(
    asker: Asker,
    name: Name,
    watch: Watch = 0.0,
) -> None:
    """Show one queue: its lanes, groups and options."""
    queue = asker.queue(name)
    show(queue.figures, queue_view, watch_s=watch, as_json=asker.as_json)


@asking
def delete(
    asker: Asker,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Remove all that it holds.")] = False,
) -> None:
    """Remove a queue with all that it holds."""
    queue = asker.queue(name)
    if not yes:
        raise ConfigError(f"--yes: missing; {queue.address} would be removed with all it holds")
    asker.tell(queue.delete(), f"[green]ok[/] {queue.address} is removed")


@asking
def promote(
    asker: Asker,
    broker: Annotated[str, typer.Argument(help="The broker, named as the node that it began on.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also when it may lack what was acknowledged.")
    ] = False,
) -> None:
    """Make the node at --http the master of a broker that it follows."""
    node = asker.node()
    path = f"/v1/brokers/{quote(broker, safe='')}/promote"
    asked: dict[str, Any] = {"as": asker.as_}
    if force:
        asked["force"] = "true"
    answer = node.post(path, None, **asked)
    asker.tell(answer, f"[green]ok[/] this node is the master of {broker}")


def _all(node: NodeApi, as_: str, prefix: str) -> dict[str, Any]:
    queues: list[dict[str, Any]] = []
    start: int | None = 0
    while start is not None:
        page = node.get(
            "/v1/queues", **{"as": as_, "prefix": prefix, "start": start, "limit": _PAGE}
        )
        queues += page["queues"]
        start = page["next"]
    return {"queues": queues}
