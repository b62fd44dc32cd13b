"""A hamlet: a few nodes' clusters in one thread, joined by links whose frames tests deliver.

Nothing runs by itself: `settle` lets ticks end and carries frames until nobody says anything more.
A way from one node to another may be held, so that a test decides what arrives before what.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.cluster.cluster import Cluster
from chappe.cluster.homes import Homes
from chappe.cluster.options import Traffic
from chappe.cluster.peer import Peer
from chappe.endpoints.application import Application
from chappe.endpoints.directory import Directory
from chappe.events.counting import CountingRecorder
from chappe.hub.app import App
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.ids import Snowflake
from chappe.store.memory import MemoryStore
from chappe.wire.encoding import STREAM, Encoding
from chappe.wire.limits import Limits
from chappe.wire.node import NodeOp, decode_node_ops, encode_node_ops
from chappe.wire.ops import Hello, Op
from tests.hub.rig import Endpoint, KeptSink, ManualClock

APP = "default"
# A tick that never ends is a mistake, not a long story.
_ROUNDS_MAX = 10_000


class HandLoop:
    """What a node asks of an event loop, turned by hand."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[float, int, HandTimer]] = []
        self._serial = itertools.count()

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._ready.append((callback, args))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> HandTimer:
        return self.call_at(self._now + delay_s, callback, *args)

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> HandTimer:
        timer = HandTimer(callback, args)
        heapq.heappush(self._timers, (when, next(self._serial), timer))
        return timer

    def turn(self) -> bool:
        """Run what is ready, and not what that makes ready; whether there was anything."""
        ready, self._ready = self._ready, deque()
        for callback, args in ready:
            callback(*args)
        return bool(ready)

    def move(self, seconds: float) -> None:
        """Let time pass, and make the calls that are due."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            self._now, _, timer = heapq.heappop(self._timers)
            timer.ring()
        self._now = until


class HandTimer:
    """A call that a loop has been asked for."""

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback = callback
        self._args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def ring(self) -> None:
        if not self.cancelled:
            self._callback(*self._args)


class HandLink:
    """One end of a link: what a peer needs of one, and what was written to it."""

    def __init__(self, name: str, down: Callable[[HandLink, str], None]) -> None:
        self.name = name
        self.paused = False
        self.up = True
        self.reason = ""
        self.frames: deque[bytes] = deque()
        self._down = down

    def write(self, body: bytes) -> None:
        if self.up:
            self.frames.append(body)

    def reset(self, reason: str) -> None:
        if self.up:
            self.up = False
            self.reason = reason
            self._down(self, reason)


class Node:
    """A hub with its application and cluster."""

    def __init__(self, name: str, number: int, loop: HandLoop, options: Any) -> None:
        self.name = name
        self.clock = ManualClock()
        self.recorder = CountingRecorder()
        serial = itertools.count(1)
        running: Any = loop
        self.hub = Hub(
            loop=running,
            clock=self.clock,
            ids=Snowflake(number, self.clock.wall_ms),
            entropy=lambda size: next(serial).to_bytes(size, "big"),
            authenticator=DevAuthenticator(TokenAuthenticator([], self.clock)),
            recorder=self.recorder,
            options=options.get("hub") or HubOptions(),
            limits=options.get("limits") or Limits(),
        )
        directory = Directory(ids=self.hub.ids, clock=self.clock, store=MemoryStore())
        self.application = Application(self.hub, directory, running, name)
        self.cluster = Cluster(
            hub=self.hub,
            application=self.application,
            loop=running,
            name=name,
            traffic=options.get("traffic"),
        )
        self.cluster.start()

    def user(self, name: str, encoding: Encoding = STREAM, *, app: str | None = None) -> Endpoint:
        """Somebody who has said hello."""
        sink = KeptSink()
        session = self.hub.open("rig", encoding, sink, "here")
        self.hub.admit(session, Hello(as_=f"user:{name}", app=app))
        return Endpoint(self.hub, sink, session)

    def leave(self, who: Endpoint) -> None:
        """Somebody's connection breaks."""
        self.hub.lost(who.session)

    def peer(self, name: str) -> Peer:
        found = self.cluster.peer(name)
        assert found is not None, f"{self.name} has no link to {name}"
        return found

    @property
    def app(self) -> App:
        return self.hub.app(APP)


class Hamlet:
    """Nodes by name, and the links between them."""

    def __init__(self, *names: str, joined: bool = True, **options: Any) -> None:
        self.loop = HandLoop()
        self._options = options
        self._nodes: dict[str, Node] = {}
        # The ends of links: what a node writes to another.
        self._ends: dict[tuple[str, str], HandLink] = {}
        self._held: set[tuple[str, str]] = set()
        for name in names:
            self.add(name)
        if joined:
            for one, other in itertools.combinations(names, 2):
                self.link(one, other)
            self.settle()

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def add(self, name: str) -> Node:
        """Start one more node, linked to nobody yet."""
        node = Node(name, len(self._nodes), self.loop, self._options)
        self._nodes[name] = node
        return node

    def link(self, one: str, other: str) -> None:
        """Let a link come up on both sides."""
        ends = [(one, other), (other, one)]
        for here, there in ends:
            self._ends[here, there] = HandLink(there, self._downs(here))
        for here, there in ends:
            link: Any = self._ends[here, there]
            self[here].cluster.link_up(link)

    def _downs(self, here: str) -> Callable[[HandLink, str], None]:
        def down(link: Any, reason: str) -> None:
            self[here].cluster.link_down(link, reason)

        return down

    def end(self, here: str, there: str) -> HandLink:
        """This node's end of the link to another."""
        return self._ends[here, there]

    def cut(self, one: str, other: str) -> None:
        """Let a link break: what was not delivered yet is lost."""
        for key in ((one, other), (other, one)):
            self._ends[key].reset("cut")

    def hold(self, here: str, there: str) -> None:
        """Deliver nothing of what a node says to another, for now."""
        self._held.add((here, there))

    def release(self, here: str, there: str) -> None:
        """Deliver it again."""
        self._held.discard((here, there))

    def pause(self, here: str, there: str) -> None:
        """The link takes no more."""
        self._ends[here, there].paused = True

    def resume(self, here: str, there: str) -> None:
        """It does."""
        link: Any = self._ends[here, there]
        link.paused = False
        self[here].cluster.writable(link)

    def tick(self) -> None:
        """Let ticks end, and deliver nothing."""
        for _ in range(_ROUNDS_MAX):
            if not self.loop.turn():
                return
        raise AssertionError("the tick does not end")

    def settle(self, *, patient: bool = True) -> None:
        """Let everybody say what they have to say, and wait for what waits, if patient."""
        for _ in range(_ROUNDS_MAX):
            self.tick()
            delivered = [self._deliver(key) for key in list(self._ends)]
            if not any(delivered) and not (patient and self._wait_for_views()):
                return
        raise AssertionError("the nodes do not come to rest")

    def _wait_for_views(self) -> bool:
        """Nodes that do not come to see the same ones go on after a while; whether some had to."""
        holding = [n.cluster for n in self._nodes.values() if n.cluster.settling.holding]
        if holding:
            self.loop.move(holding[0].settle_s)
        return bool(holding)

    def _deliver(self, key: tuple[str, str]) -> bool:
        """Deliver one frame, if there is one."""
        here, there = key
        end, other = self._ends[key], self._ends[there, here]
        if end.up and not other.up:
            end.reset("the other side reset")
            return True
        if not end.frames or key in self._held or not other.up:
            return False
        link: Any = other
        self[there].cluster.received(link, [end.frames.popleft()])
        return True

    def said(self, here: str, there: str) -> list[NodeOp]:
        """What a node has said to another and nobody delivered yet."""
        return [op for body in self._ends[here, there].frames for op in decode_node_ops(body)]

    def forge(self, here: str, there: str, *ops: NodeOp) -> None:
        """Let another node hear something that this one never said."""
        link: Any = self._ends[there, here]
        self[there].cluster.received(link, [encode_node_ops(ops)])

    def later(self, seconds: float) -> None:
        """Let time pass on every clock, and what is due happen."""
        for node in self._nodes.values():
            node.clock.now_s += seconds
        self.loop.move(seconds)
        self.settle()

    def ask(self, who: Endpoint, op: Op) -> Any:
        """Say something, settle, and give the reply."""
        who.say(op)
        self.settle()
        return who.reply()

    def placed(self, kind: str, home: str, skip: int = 0) -> str:
        """An address of that kind whose home is that node, as all see it."""
        node = self[home]
        names = (f"{kind}:{home}-{n}" for n in range(10_000))
        at_home = (name for name in names if node.cluster.is_home(APP, name))
        return next(itertools.islice(at_home, skip, None))


def home_among(names: str, address: str) -> str:
    """Which of these nodes an address lives on when all of them are linked."""
    first, *others = names
    homes = Homes(first)
    peers: Any = [HandLink(name, lambda link, reason: None) for name in others]
    homes.see(peers)
    home = homes.home(APP, address)
    return first if home is None else home.name


def moving(kind: str, *homes: tuple[str, str], skip: int = 0) -> str:
    """An address whose home is, among such nodes, such a one: for each pair given."""
    names = (f"{kind}:m{n}" for n in range(100_000))
    found = (
        name for name in names if all(home_among(nodes, name) == home for nodes, home in homes)
    )
    return next(itertools.islice(found, skip, None))


def narrow(**bounds: Any) -> dict[str, Any]:
    """Options with these bounds on traffic."""
    return {"traffic": Traffic(**bounds)}
