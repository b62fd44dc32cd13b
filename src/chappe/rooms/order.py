"""Order: what one publisher says in a room is delivered in the order it was said (R14).

Its messages go one way, by one proxy and one broker, for as long as both live, and their ids grow.
On that way a message that comes after a later one is left out: nobody waits for what is missing.
By another way both may come, in any order: a change of ways may disturb the order, and loses
nothing.

    way A: 1   3   2          2 is left out: 3 was delivered
    way A: 1   3   way B: 4   way A: 2    all are delivered
"""

from __future__ import annotations

from collections import OrderedDict

from chappe.ids import NODE_MAX, SEQUENCE_BITS

# The broker's node, the proxy and the broker.
Way = tuple[str, int, int]


class Order:
    """The last message of each publisher in each room, the flow longest unheard of first."""

    __slots__ = ("_flows", "_flows_max")

    def __init__(self, flows_max: int) -> None:
        self._flows_max = flows_max
        self._flows: OrderedDict[tuple[str, str, int], tuple[int, Way]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._flows)

    def take(self, app: str, to: str, id: int, way: Way) -> bool:
        """Whether a message may be delivered; False: it was overtaken on its way."""
        flows = self._flows
        flow = (app, to, (id >> SEQUENCE_BITS) & NODE_MAX)
        last = flows.get(flow)
        if last is not None:
            flows.move_to_end(flow)
            if id <= last[0]:
                # A straggler from another way, which does not become the way again.
                return way != last[1]
        flows[flow] = (id, way)
        if len(flows) > self._flows_max:
            flows.popitem(last=False)
        return True
