"""`chappe rooms weigh`: how much each proxy and broker is given (R6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

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
    if not (measured or proxies or brokers):
        raise ConfigError("say --proxy, --broker or --measured")
    if measured and (proxies or brokers):
        raise ConfigError("--measured: say either that, or weights")
    node, who = asker.node(), {"as": asker.as_} if asker.as_ else {}
    if not measured:
        there = node.get("/v1/rooms/status", **who)
        _check("--proxy", proxies, there["proxies"])
        _check("--broker", brokers, there["brokers"])
    body = {"proxies": proxies, "brokers": brokers}
    answer = node.put("/v1/rooms/weights", body | who)
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
        # 03 is 3.
        weights[str(int(id_))] = value
    return weights


def _check(flag: str, weights: Mapping[str, float], there: list[dict[str, Any]]) -> None:
    """Raise ConfigError for an id that nobody has: its weight would wait for somebody in vain."""
    ids = {str(each["id"]) for each in there}
    for id_ in weights:
        if id_ not in ids:
            role = flag.removeprefix("--")
            known = ", ".join(sorted(ids, key=int)) or "nobody"
            raise ConfigError(f"{flag}: there is no {role} {id_} (but {known})")
