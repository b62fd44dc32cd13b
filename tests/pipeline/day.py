"""A day of traffic on three nodes whose clocks differ, with everything that can go wrong planted.

`Day.rows` is what nodes told, in the order in which it came to be known; `Day.truth` is what really
happened, found without the pipeline. Hours without traffic are left out, as a row more is none the
wiser: clocks drift meanwhile.

n1   clock right; stops in order at 22:30, and is back ten seconds later
n2   clock 3 s ahead in the morning, 3.5 s at noon, 5 s at night
n3   clock 2 s behind; killed at 12:30, back ten minutes later with a clock that is 0.7 s behind
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from chappe.pipeline.options import Options
from tests.pipeline.mishaps import plant
from tests.pipeline.times import AWAY, BACK, END, HOURS, KILLED, RESTARTED, STOPPED
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Hop, Node, Row, World, hour
from tests.pipeline.truth import Life, Truth, minute

# Of app b, this share of messages is recorded.
SAMPLED = 0.25


class Day:
    """The day, and what is true of it."""

    def __init__(self, seed: int = 5) -> None:
        self.options = Options()
        self.truth = Truth()
        self.world = World(
            Node("n1"),
            Node("n2", 3 * SECOND, [(DAY + 5 * HOUR, 3_500_000), (DAY + 20 * HOUR, 5 * SECOND)]),
            Node("n3", -2 * SECOND, [(BACK, -700_000)]),
        )
        self.random = Random(seed)
        self._lives()
        self._links()
        for number in HOURS:
            self._hour(DAY + number * HOUR)
        self._busy(DAY + 9 * HOUR + 40 * MINUTE)
        plant(self)
        self.bad = nonsense(self.world.rows[0])
        self.rows: list[Row] = [*self.world.rows, *(row for row, _problem in self.bad)]

    def draw(self, least: int, most: int) -> int:
        return self.random.randrange(least, most)

    def _lives(self) -> None:
        world = self.world
        for name in ("n1", "n2", "n3"):
            world.start(name, DAY)
        world.start("n3", BACK)
        world.start("n1", RESTARTED)
        world.tell("n1", STOPPED - 1, "node_stopped")
        for number in HOURS:
            begin = DAY + number * HOUR
            for name in world.nodes:
                for true in range(begin + MINUTE, min(begin + HOUR, END), MINUTE):
                    if not any(left <= true < back for left, back in AWAY.get(name, ())):
                        world.tell(name, true, "node_alive")
        world.tell("n3", END, "node_stopped")

    def _links(self) -> None:
        """Beats in every other minute; links that are lost with a node, and one at the end."""
        for number in HOURS:
            begin = DAY + number * HOUR
            for true in range(begin + 20 * SECOND, min(begin + HOUR, END - MINUTE), 2 * MINUTE):
                before = len(self.world.rows)
                self.world.beat(true, true + 20 * SECOND, 10 * SECOND, AWAY)
                for row in self.world.rows[before:]:
                    self._beat(row["node"], row["peer"], true, row["round_trip"], row["ahead"])
        for node in ("n1", "n2"):
            self._change(node, "n3", DAY, "up")
            self._change(node, "n3", KILLED + 5 * SECOND, "down", BACK)
            self._change(node, "n3", BACK, "up")
        for node in ("n2", "n3"):
            self._change(node, "n1", STOPPED, "down", RESTARTED)
            self._change(node, "n1", RESTARTED, "up")
        self._change("n3", "n2", END - 70 * SECOND, "down", END)

    def _beat(self, node: str, peer: str, true: int, trip: int, ahead: int) -> None:
        at = self.world.nodes[node].clock(true)
        # The slow beat is ten seconds later, by no clock in another minute than the first.
        assert minute(at) == minute(at + 10 * SECOND)
        key = (hour(at), node, peer, None, minute(at))
        self.truth.links[key]["beats"] += 1
        self.truth.beats[key].append((trip, ahead))

    def _change(self, node: str, peer: str, true: int, to: str, until: int = 0) -> None:
        """A link comes or goes: minutes are those of the node that tells."""
        clock = self.world.nodes[node].clock
        self.world.tell(node, true, f"link_{to}", peer=peer)
        at = clock(true)
        self.truth.links[hour(at), node, peer, None, minute(at)][f"{to}s"] += 1
        while at < clock(until):
            end = min(clock(until), minute(at) + MINUTE)
            self.truth.links[hour(at), node, peer, None, minute(at)]["down_us"] += end - at
            at = end

    def _hour(self, hour: int) -> None:
        # By all clocks it has begun then.
        begin = hour + MINUTE
        for n in range(4):
            self.chain(begin + (2 * n + 1) * MINUTE + self.draw(0, SECOND))
            self.star(begin + (2 * n + 2) * MINUTE + self.draw(0, SECOND))
        for n in range(2):
            true = begin + (2 * n + 1) * MINUTE
            self.send(true, [Hop("n2", None, 0, self.draw(20, 200), 1)])
            far = Hop("n3", "n2", self.draw(100, 900), self.draw(20, 200), 2)
            self.send(true + SECOND, [Hop("n2", None, 0, self.draw(20, 200)), far])
        for n in range(3):
            self.queued("n2", begin + n * 3 * MINUTE + self.draw(0, SECOND))
            self.queued("n1", begin + n * MINUTE, app="b", queue="queue/two", groups=("g", "h"))
        for n in range(2):
            self.request("n1", begin + n * MINUTE + 5, took=self.draw(500, 9000))
            self.request("n3", begin + n * MINUTE + 7, took=self.draw(500, 9000))
        self.request("n1", begin + 3 * MINUTE, took=4000, reason="timeout")

    def _busy(self, begin: int) -> None:
        """A minute with so many messages that the last per mille is one of them."""
        for n in range(1200):
            inside = round(math.exp(self.random.gauss(6, 2))) + 1
            self.send(begin + n * 40_000, [Hop("n1", None, 0, inside, 1)])

    def chain(self, true: int, **options: Any) -> Life:
        """To a topic, from n1 over n2 to n3, where two get it."""
        draw = self.draw
        hops = [
            Hop("n1", None, 0, draw(20, 200)),
            Hop("n2", "n1", options.pop("slow", 0) + draw(100, 900), draw(20, 200)),
            Hop("n3", "n2", draw(100, 900), draw(20, 200), 2),
        ]
        return self.travel("topic", true, hops, **options)

    def star(self, true: int, **options: Any) -> Life:
        """To a topic of app b, of which a quarter is recorded: from n2 to both others, and some get
        it at each."""
        draw = self.draw
        hops = [
            Hop("n2", None, 0, draw(20, 200), 1),
            Hop("n1", "n2", draw(100, 900), draw(20, 200), 3),
            Hop("n3", "n2", draw(100, 900), draw(20, 200), 2),
        ]
        about = {"app": "b", "target": "topic/b", "share": SAMPLED}
        return self.travel("topic", true, hops, **{**about, **options})

    def send(self, true: int, hops: list[Hop], **options: Any) -> Life:
        return self.travel("send", true, hops, kind="sent", **{"target": "user/r", **options})

    def travel(
        self,
        family: str,
        true: int,
        hops: list[Hop],
        *,
        silent: tuple[str, ...] = (),
        delivered: bool | None = None,
        again: int = 0,
        **about: Any,
    ) -> Life:
        """A message through nodes, as it is meant to be; lost at those that are silent. Unless it
        is said, it is delivered when it came to all; `again` is how much later to the last one."""
        message, left = self.world.travel(true, hops, silent=silent, **about)
        named = self.world.nodes[hops[0].node].clock(true)
        told = {name: about[name] for name in ("app", "share") if name in about}
        target = about.get("target", "topic/t")
        life = Life(self.truth, family, named, true, **told, message=message, target=target)
        fronts = {hop.before for hop in hops}
        for hop in hops:
            last = "relay" if hop.node in fronts else "last"
            role = "origin" if hop.before is None else last
            if hop.before in left:
                life.hand(hop.before or "", hop.node, hop.travel if hop.node in left else None)
            if hop.node in left:
                life.step("hub", role, hop.inside)
                if hop.before is not None:
                    life.step("link", role, hop.travel)
        ends = [left[hop.node] - true for hop in hops if hop.n and hop.node in left]
        if ends:
            life.step("delivery", "whole", max(ends) + again)
        if delivered is None:
            delivered = len(left) == len(hops)
        in_time = delivered and max(ends, default=0) <= self.options.sla_ms * 1000
        life.judge(delivered=delivered, in_time=in_time)
        life.left = left
        return life

    def queued(
        self,
        node: str,
        true: int,
        *,
        app: str = "a",
        queue: str = "queue/q",
        groups: tuple[str, ...] = ("g",),
        wait: int | None = None,
        work: int | None = None,
    ) -> Life:
        """Stored, handed to groups after a while, done by each a while later."""
        life, ready = self.stored(node, true, app=app, queue=queue)
        about = {"app": app, "target": queue}
        waits = [self.draw(1000, SECOND) if wait is None else wait for _group in groups]
        works = [self.draw(1000, SECOND) if work is None else work for _group in groups]
        ends = [ready + one + two for one, two in zip(waits, works, strict=True)]
        for group, one, end in zip(groups, waits, ends, strict=True):
            told = {**about, "group_name": group}
            self.world.work(node, ready + one, life.message, "lent", **told)
            life.queue(ready + one, "lent", age=one)
            life.step("wait", "whole", one)
            self.world.work(node, end, life.message, "acked", **told)
            life.queue(end, "acked", change=-1 if end == max(ends) else 0)
            life.step("work", "whole", end - ready - one)
            life.step("done", "whole", end - ready)
        life.judge(delivered=True, in_time=min(waits) <= self.options.queue_sla_ms * 1000)
        return life

    def stored(
        self, node: str, true: int, *, app: str = "a", queue: str = "queue/q", due: int = 0
    ) -> tuple[Life, int]:
        """A message in a queue, and from when on it may be handed out."""
        delayed = {"due": due} if due else {}
        message = self.world.store(node, true, queue=queue, app=app, **delayed)
        named = self.world.nodes[node].clock(true)
        life = Life(self.truth, "queue", named, true, app=app, message=message, target=queue)
        life.step("store", "whole", 500)
        life.queue(true + 500, "stored", change=1)
        return life, max(true + 500, due)

    def request(self, node: str, true: int, *, took: int | None, reason: str | None = None) -> Life:
        label = f"{node}.{self.world.id_at(true, node)}"
        self.world.ask(node, true, label, took, reason=reason)
        named = self.world.nodes[node].clock(true)
        life = Life(self.truth, "request", named, true, label=label, target="service/s")
        well = took is not None and reason is None
        life.judge(delivered=well, in_time=well and (took or 0) <= self.options.sla_ms * 1000)
        if took is not None and reason is None:
            life.step("answer", "whole", took)
        return life


def nonsense(good: Row) -> list[tuple[Row, str]]:
    """Rows that break each of the rules, and what is said of them."""
    missing = ("v", "kind", "node", "boot", "serial", "at", "share")
    # No number that is absurd comes as far as to be added to another.
    most, never = 2**63 - 1, "at no time that an id is given at"
    changes: list[tuple[dict[str, Any], str]] = [
        *(({name: None}, f"{name}: missing") for name in missing),
        ({"v": 0}, "v: not a version"),
        ({"kind": "nonsense"}, "kind: unknown"),
        ({"at": 5}, "at: before any id was given"),
        ({"at": 1 << 62}, "at: beyond all ids"),
        ({"kind": "stored", "message": -5}, "message: not an id"),
        ({"share": 0.0}, "share: not above 0 up to 1"),
        ({"share": 1.5}, "share: not above 0 up to 1"),
        ({"share": math.nan}, "share: not above 0 up to 1"),
        ({"kind": "lent", "group_name": "g"}, "message: missing"),
        ({"kind": "answered"}, "label: missing"),
        ({"kind": "lent", "message": 5}, "group_name: missing"),
        ({"kind": "link_up"}, "peer: missing"),
        ({"kind": "answered", "label": "words", "came": most}, f"came: {never}"),
        ({"kind": "stored", "message": 5, "due": most}, f"due: {never}"),
        ({"kind": "link", "peer": "n2", "ahead": -most}, f"ahead: {never}"),
        ({"kind": "published", "message": 5, "n": most}, "n: not a number of them"),
        ({"kind": "purged", "target": "queue/q", "n": -1}, "n: not a number of them"),
        ({"kind": "room_load", "n": 1}, "partition: missing"),
        ({"kind": "room_load", "n": 1, "partition": -1}, "partition: not a number of them"),
        ({"kind": "push_sent", "label": "p", "n": 1}, "job: missing"),
        ({"kind": "push_acked", "label": "p", "offline": -1}, "offline: not a number of them"),
        ({"kind": "push_acked", "label": "p0a0000100000001"}, f"message: {never}"),
    ]
    return [
        ({**good, "serial": 1_000_000 + n, **change}, problem)
        for n, (change, problem) in enumerate(changes)
    ]
