"""Blame: which link it was that probes were lost on (R15).

A probe that did not come says nothing of where it was lost; those of the same round that did come
say where it was not. What is left is explained by as few links as will do:

| what was lost                                   | whose fault it is                          |
|-------------------------------------------------|--------------------------------------------|
| all by one proxy, while others' came            | the link to that proxy                     |
| all by one broker, while others' came           | the link from that broker                  |
| one, while others by its proxy and broker came  | the link between the two                   |
| all, by one proxy and several brokers           | the link to that proxy                     |
| all, by as many proxies as brokers              | all links to proxies and from brokers      |
| all, by one proxy and one broker                | all three: nothing tells them apart        |

So a single loss counts against the link from a proxy to a broker, wherever it was: only that link
is no other path's. Who asks for the share of a link to a proxy or from a broker is told of outages,
and of paths that no other vouches for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from chappe.rooms.linkstats import Link


class Path(NamedTuple):
    """The links of a probe's way."""

    to_proxy: Link
    to_broker: Link
    to_gateway: Link


def blame(arrived: Collection[Path], lost: Collection[Path]) -> Counter[Link]:
    """The links that lost the probes of a round, each with how many of them."""
    vouched = {link for path in arrived for link in path}
    suspects = [[link for link in path if link not in vouched] for path in lost]
    blamed: Counter[Link] = Counter()
    # Ends: each turn explains a path at the least.
    while suspects:
        counts = Counter(link for path in suspects for link in path)
        most = max(counts.values(), default=0)
        culprits = {link for link, count in counts.items() if count == most}
        blamed.update({link: counts[link] for link in culprits})
        suspects = [path for path in suspects if path and culprits.isdisjoint(path)]
    return blamed
