"""What is said in rooms on the generated day, and what its roles tell, with what is true of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tests.pipeline.times import HOURS, KILLED
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, hour
from tests.pipeline.truth import Life, minute

if TYPE_CHECKING:
    from tests.pipeline.day import Day

ROOM = "room:7"


class Step(NamedTuple):
    """A message at a node in a role, the last that it has there; none is a gateway's. Before it was
    another step, by its place. It came to another role, if that is told. What is lost on its way
    there is not told."""

    node: str
    role: str | None = None
    before: int | None = None
    n: int = 0
    travel: int = 0
    inside: int = 50
    kind: str = "published"
    lost: bool = False
    taken_as: str | None = None
    # It came, and its node had no time to tell.
    silent: bool = False


class Said:
    """A message to a room, told step by step."""

    def __init__(self, day: Day, true: int, steps: list[Step], **about: Any) -> None:
        about = {"app": "a", "target": ROOM, "share": 1.0, **about}
        self._day, self._steps = day, steps
        clock = day.world.nodes[steps[0].node].clock
        self.message = day.world.id_at(true, steps[0].node)
        self._about = {**about, "message": self.message, "sender": "user/s"}
        self._true = true
        self.life = Life(day.truth, "room", clock(true), true, message=self.message, **about)
        # When it left each step, if it came there.
        self.left: dict[int, int] = {}
        for place in range(len(steps)):
            self._step(place)
        gives = [
            (self.left[n], step.n) for n, step in enumerate(steps) if step.n and n in self.left
        ]
        if gives:
            self.life.step("delivery", "whole", max(gives)[0] - true)
        self.life.say(sum(n for _left, n in gives), len(gives))

    def _step(self, place: int) -> None:
        step, life = self._steps[place], self.life
        before = None if step.before is None else self._steps[step.before]
        if before is not None and step.before not in self.left:
            return
        away = before is not None and before.node != step.node
        if before is not None and away and not before.silent:
            travel = None if step.lost or step.silent else step.travel
            life.hand(before.node, step.node, travel, before.role)
        if before is not None and before.silent:
            # How long it was under way is not known; in which role it came, if its node tells.
            life.mention(before.node, step.node, before.role if step.role else None)
        if step.lost:
            return
        came = self._came(step)
        self.left[place] = came + step.inside
        if step.silent:
            return
        went_to = [one.node for one in self._steps if one.before == place and one.node != step.node]
        told: dict[str, Any] = {"came": came, "came_from": before and before.node, "n": step.n}
        self._day.world.tell(
            step.node,
            self.left[place],
            step.kind,
            **{**self._about, **told, "went_to": went_to or None, "bytes": 9},
            role=step.role,
            taken_as=step.taken_as,
        )
        part = "origin" if before is None else "relay" if went_to else "last"
        if step.kind == "published":
            life.step("hub", part, step.inside)
        if before is not None and away and not before.silent:
            life.step("link", part, step.travel)

    def _came(self, step: Step) -> int:
        since = self._true if step.before is None else self.left[step.before]
        return since + step.travel

    def arrived(self) -> Life:
        """Everybody got it who should."""
        self.life.judge(delivered=True)
        return self.life

    def failed(self, verdict: str, reason: str, place: int, **how: Any) -> None:
        """Somebody did not; it was last seen at that step."""
        self.life.judge(delivered=False)
        self.life.verdict(verdict, reason, self._steps[place].node, self.left[place], **how)


def plant_rooms(day: Day) -> None:
    for number in HOURS:
        begin = DAY + number * HOUR + 15 * MINUTE
        _everyday(day, begin)
        for broker in (("n1", 0, 400), ("n2", 1, 900), ("n3", 2, 80)):
            _work(day, begin, *broker)
        _probes(day, begin)
    _copies(day, DAY + 9 * HOUR + 20 * MINUTE)
    _lost(day, DAY + 9 * HOUR + 25 * MINUTE)


def chain(day: Day) -> list[Step]:
    """From n1 by a proxy on n2 to a broker on n3; on n1 and n2 are gateways."""
    draw = day.draw
    return [
        Step("n1", "publisher"),
        Step("n2", "proxy", 0, travel=draw(100, 900), inside=draw(20, 200)),
        Step("n3", "broker", 1, travel=draw(100, 900), inside=draw(20, 200)),
        Step("n1", None, 2, n=2, travel=draw(100, 900), inside=draw(20, 200)),
        Step("n2", None, 2, n=3, travel=draw(100, 900), inside=draw(20, 200)),
    ]


def _everyday(day: Day, true: int) -> None:
    for n in range(3):
        Said(day, true + n * SECOND, chain(day)).arrived()
    # A node that has all roles, and is alone.
    Said(day, true, [Step("n2", n=4)], app="b", target="room:8", share=0.25).arrived()
    # Proxy and broker on one node, and a gateway beside them.
    one = [Step("n1", "publisher"), Step("n2", "broker", 0, travel=300, taken_as="proxy")]
    Said(day, true, [*one, Step("n2", None, 1, n=1), Step("n3", None, 1, n=5, travel=40)]).arrived()
    # Publisher and proxy on one node, broker and gateway on another, and nobody else.
    Said(day, true, [Step("n1", "proxy"), Step("n3", None, 0, n=2, travel=70)]).arrived()
    # Nobody is in that room: it was promised to nobody.
    Said(day, true, [*one], target="room:9")
    Said(day, true, [*one, Step("n3", "gateway", 1, travel=30)], target="room:9")
    # The publisher's node is the broker's: it hands the same message to n2 twice.
    Said(day, true, _to_and_fro()).arrived()


def _to_and_fro() -> list[Step]:
    return [
        Step("n1", "publisher"),
        Step("n2", "proxy", 0, travel=200),
        Step("n1", "broker", 1, travel=300),
        Step("n2", None, 2, n=1, travel=5000),
    ]


def _copies(day: Day, true: int) -> None:
    """Reliable messages: each copy is told, and nobody misses what another copy brought. R13"""
    first = [
        Step("n1", "publisher"),
        Step("n2", "proxy", 0, travel=100),
        Step("n3", "broker", 1, travel=200),
        Step("n2", None, 2, n=3, travel=300),
    ]
    # Later by the same way, and by a proxy beside the publisher: that one is lost.
    again = [
        Step("n1", "publisher", travel=10_000),
        Step("n2", "proxy", 4, travel=150),
        Step("n3", "broker", 5, travel=250),
        Step("n2", "gateway", 6, travel=350, kind="copied"),
        Step("n1", "proxy", travel=20_000),
        Step("n3", "broker", 8, lost=True),
    ]
    Said(day, true, first + again).arrived()
    # Lost on its way to the gateway, which another copy comes to.
    missed = [*first[:3], Step("n2", None, 2, lost=True), *again[:3]]
    Said(day, true + SECOND, [*missed, Step("n2", None, 6, n=3, travel=350)]).arrived()
    # Dropped where no broker is known, and carried by another.
    said = Said(day, true + 2 * SECOND, [*first, Step("n3", "proxy", 0, travel=100)])
    _drop(day, said, "n3", 4, "no_broker", "proxy")
    said.arrived()
    # To a proxy beside its broker, and from one beside its publisher to that broker.
    both = [
        Step("n1", "publisher"),
        Step("n2", "broker", 0, travel=100, taken_as="proxy"),
        Step("n1", "proxy"),
        Step("n2", "broker", 2, travel=700),
        Step("n3", None, 1, n=1, travel=60),
        Step("n3", "gateway", 3, travel=80, kind="copied"),
    ]
    Said(day, true + 4 * SECOND, both).arrived()
    # The same, where no other gateway is: it went to sessions first, and was known then.
    alone = [both[0], Step("n2", None, 0, n=1, travel=100), both[2]]
    copy = Step("n2", "gateway", 2, travel=700, kind="copied", taken_as="broker")
    Said(day, true + 5 * SECOND, [*alone, copy]).arrived()
    # All copies are lost.
    gone = [Step("n1", "publisher"), Step("n2", "proxy", 0, lost=True), Step("n3", "proxy", 0)]
    said = Said(day, true + 3 * SECOND, [*gone, Step("n2", "broker", 2, lost=True)])
    said.failed("lost", "it did not come to n2", 2, open=True)


def _drop(day: Day, said: Said, node: str, place: int, reason: str, role: str) -> int:
    """What came to a step is dropped a little later."""
    true = said.left[place] + 10
    about = {"app": "a", "message": said.message, "target": ROOM, "n": 1}
    day.world.tell(node, true, "dropped", **about, reason=reason, role=role)
    return true


def _lost(day: Day, true: int) -> None:
    steps = chain(day)
    steps[-1] = steps[-1]._replace(lost=True)
    said = Said(day, true, steps)
    said.failed("lost", "it did not come to n2", 3, open=True)

    said = Said(day, true + SECOND, [Step("n1", "publisher"), Step("n2", "proxy", 0, lost=True)])
    said.failed("lost", "it did not come to n2", 0, open=True)

    # It came to n2 as to a proxy, not as to a gateway.
    steps = _to_and_fro()
    steps[-1] = steps[-1]._replace(lost=True)
    said = Said(day, true + 2 * SECOND, steps)
    said.failed("lost", "it did not come to n2", 2, open=True)

    for reason, role in (("no_broker", "proxy"), ("overtaken", "gateway")):
        steps = chain(day)[: 2 if role == "proxy" else 4]
        said = Said(day, true + 3 * SECOND, steps)
        place = len(steps) - 1
        at = _drop(day, said, steps[place].node, place, reason, role)
        said.life.judge(delivered=False)
        said.life.verdict("lost", f"dropped: {reason}", steps[place].node, at)

    # The proxy was killed, and did not tell what it handed on: the broker had it, so did all.
    steps = [
        Step("n1", "publisher"),
        Step("n3", "proxy", 0, travel=100, silent=True),
        Step("n2", "broker", 1, travel=200),
        Step("n1", None, 2, n=1, travel=300),
    ]
    Said(day, KILLED - 15 * SECOND, steps).arrived()
    # The broker was, after it had handed it on: maybe to others, too.
    steps = [Step("n1", "proxy"), Step("n3", "broker", 0, travel=100, silent=True)]
    said = Said(day, KILLED - 10 * SECOND, [*steps, Step("n2", None, 1, n=1, travel=300)])
    said.failed("unknown", "n3 died before it told", 2, open=True)
    # The broker was killed, and did not tell what it had.
    steps = chain(day)
    steps[2] = steps[2]._replace(lost=True)
    said = Said(day, KILLED - 20 * SECOND, steps)
    said.failed("unknown", "n3 died before it told", 1, open=True)


def _work(day: Day, begin: int, node: str, partition: int, messages: int) -> None:
    """What a broker tells of itself and of its hottest rooms, every ten seconds."""
    truth, tell = day.truth, day.world.tell
    for true in range(begin + 5 * SECOND, begin + 2 * MINUTE, 10 * SECOND):
        at = hour(day.world.nodes[node].clock(true))
        members = true % 1000
        load = {"n": messages, "copies": 2 * messages, "rooms": 5, "members": members}
        tell(node, true, "room_load", partition=partition, **load)
        truth.loads[at, node, partition, minute(true)].append(load)
        for room, part in (("room:7", 10), ("room:hot", 2)):
            heat = {"n": messages // part, "copies": 2 * messages // part, "gateways": 2}
            heat["members"] = members // part
            about = {"app": "a", "target": room, "partition": partition}
            tell(node, true, "room_heat", **about, **heat)
            truth.heats[at, "a", room, minute(true)].append((node, partition, heat))


def _probes(day: Day, begin: int) -> None:
    """What n1 and n2 find of the link from a proxy on n2 to a broker on n3. R15"""
    for n, node in enumerate(("n1", "n2")):
        clock = day.world.nodes[node].clock
        for true in (begin, begin + 10 * SECOND):
            found = {"n": 10, "failed": n, "delay_p50": 100 + n, "delay_p99": 900 - n}
            link = {"came_from": "n2", "role": "proxy", "peer": "n3", "peer_role": "broker"}
            day.world.tell(node, true, "room_link", **link, **found)
            day.truth.probe(hour(clock(true)), "n2", "n3", "proxy", minute(clock(true)), found)
        alarm = {"role": "proxy", "peer": "n3", "peer_role": "broker", "reason": "failing"}
        day.world.tell(node, begin, "room_alarm", came_from="n2", n=5, **alarm)
