"""`chappe rooms weigh`: how much each proxy and broker is given (R6)."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from chappe.cli.queue.asker import Asker, asking
from chappe.errors import ConfigError

Given = Annotated[list[str] | None, typer.Option(help="ID=WEIGHT or NODE=WEIGHT; may be repeated.")]


@asking
def weigh(
    asker: Asker,
    proxy: Given = None,
    broker: Given = None,
    measured: Annotated[
        bool, typer.Option("--measured", help="Set nobody's: all are measured again.")
    ] = False,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Set the rest where nobody has some ids.")
    ] = False,
) -> None:
    """Set the weights of proxies and brokers, in the place of all that were set before."""
    proxies, brokers = _weights("--proxy", proxy), _weights("--broker", broker)
    if not (measured or proxies or brokers):
        raise ConfigError("say --proxy, --broker or --measured")
    if measured and (proxies or brokers):
        raise ConfigError("--measured: say either that, or weights")
    who = {"as": asker.as_} if asker.as_ else {}
    body: dict[str, Any] = {"proxies": proxies, "brokers": brokers}
    if ignore_unknown:
        body["unknown"] = "ignore"
    answer = asker.node().put("/v1/rooms/weights", body | who)
    ignored = answer.get("ignored", {})
    gone_proxies, gone_brokers = ignored.get("proxies", []), ignored.get("brokers", [])
    told = _told(len(proxies) - len(gone_proxies), len(brokers) - len(gone_brokers))
    for role, ids in (("proxy", gone_proxies), ("broker", gone_brokers)):
        told += f"; there is no {role} {', '.join(map(str, ids))}" if ids else ""
    asker.tell(answer, f"[green]ok[/] {told}")


def _told(proxies: int, brokers: int) -> str:
    """What is set now; by turns nobody else is measured, so that is not said."""
    if not proxies and not brokers:
        return "nobody has a weight that was set"
    return f"weights of proxies: {proxies}, of brokers: {brokers}; nobody else has one that was set"


def _weights(flag: str, given: list[str] | None) -> dict[str, float]:
    weights: dict[str, float] = {}
    for text in given or ():
        who, equals, weight = text.rpartition("=")
        try:
            value = float(weight)
        except ValueError:
            value = math.nan
        # So written, NaN is refused as well.
        if not (equals and who and 0 <= value < math.inf):
            raise ConfigError(f"{flag}: {text!r} is not ID=WEIGHT or NODE=WEIGHT, such as 3=0.5")
        if who in weights:
            raise ConfigError(f"{flag}: {who!r} is there twice")
        weights[who] = value
    return weights
