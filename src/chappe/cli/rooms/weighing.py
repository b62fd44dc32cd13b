"""`chappe rooms weigh`: how much each proxy and broker is given (R6)."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from chappe.cli.queue.asker import Asker, asking
from chappe.errors import ConfigError

Given = Annotated[list[str] | None, typer.Option(help="ID=WEIGHT; may be repeated. 0: nothing.")]


@asking
def weigh(
    asker: Asker,
    proxy: Given = None,
    broker: Given = None,
    measured: Annotated[
        bool, typer.Option("--measured", help="Set nobody's: all are measured again.")
    ] = False,
) -> None:
    """Set the weights of proxies and brokers, in the place of all that were set before."""
    proxies, brokers = _weights("--proxy", proxy), _weights("--broker", broker)
    if measured == bool(proxies or brokers):
        raise ConfigError("--measured: say either that, or weights")
    body = {"proxies": proxies, "brokers": brokers}
    answer = asker.node().put("/v1/rooms/weights", body | ({"as": asker.as_} if asker.as_ else {}))
    told = f"{len(proxies)} proxies and {len(brokers)} brokers have weights; others are measured"
    asker.tell(answer, f"[green]ok[/] {told}")


def _weights(flag: str, given: list[str] | None) -> dict[str, float]:
    weights = {}
    for text in given or ():
        id_, equals, weight = text.partition("=")
        try:
            value = float(weight)
        except ValueError:
            value = math.nan
        # So written, NaN is refused as well.
        if not (equals and id_.isascii() and id_.isdigit() and 0 <= value < math.inf):
            raise ConfigError(f"{flag}: {text!r} is not ID=WEIGHT, such as 3=0.5")
        weights[id_] = value
    return weights
