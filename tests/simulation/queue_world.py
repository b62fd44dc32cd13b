"""A broker with producers and consumers on a bad day, then on a good one: all from one seed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from unittest.mock import patch

from structlog.testing import capture_logs

from chappe.queues.broker import Broker
from chappe.queues.group import Group
from chappe.queues.lending import Lending
from chappe.queues.queue import Queue
from chappe.simulation import PowerCut, SimFs, Simulation
from chappe.simulation.process import outside
from tests.simulation.queue_chaos import Chaos
from tests.simulation.queue_history import Dead, History, Lent, number_of
from tests.simulation.queue_node import QueueNode
from tests.simulation.queue_people import NODE, Administrator, Consumer, Person, Producer

JOBS, LINE = "queue:jobs", "queue:line"
# The group that comes while the others are at work.
LATE = "late"
TROUBLE_S = 16.0
# Everything was tried again long before: the longest wait between two tries is a second.
DRAIN_S = 120.0
ACK_TIMEOUT_S = 1.5
CAPACITY = 64 * 1024 * 1024
STEPS_MAX = 300_000


class QueueWorld:
    """One machine with a broker, people who use it, and bad luck."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, steps_max=STEPS_MAX)
        self.loop = self.simulation.loop
        self.network = self.simulation.network
        self.trace = self.simulation.trace
        self.random = random = self.simulation.stream("world")
        self.history = History()
        self.queues = [JOBS, LINE]
        self.ordered = {LINE}
        self.groups = {JOBS: ["a", "b", "red"], LINE: [""]}
        # When a group that came while others were at work was there for sure.
        self.late: dict[str, float] = {}
        self.attempts_max = random.choice([2, 4, 16])
        self.rate = random.choice([2.0, 6.0])
        # With any other policy only a process that ends loses nothing.
        self.flush = random.choice(["always", "always", "always", "interval", "never"])
        self.segment_bytes = random.choice([2_048, 8_192, 100_000])
        self.allocate_bytes = random.choice([0, 4_096])
        # None: every read comes from the disk.
        self.cache_bytes = random.choice([0, 2_000, 1 << 20])
        self.disk_random = self.simulation.stream("disk")
        self.capacity = CAPACITY
        self.fs = SimFs(self.simulation.stream("fs"), self.trace, capacity=CAPACITY)
        self.disk_s = (0.0001, random.choice([0.001, 0.02]))
        # Starts of the broker, and of these and its reopenings of queues whose commit failed.
        self.boots = self.lives = 0
        self.node: QueueNode | None = None
        self.quiet = self.over = self.ended = False
        self.finished: dict[str, Any] = {}
        # How often several messages were sent, or acknowledged, together.
        self.together: Counter[str] = Counter()
        self._starting: asyncio.Task[None] | None = None

    @property
    def durable(self) -> bool:
        """Whether what was answered ok outlives a power cut."""
        return self.flush == "always"

    def run(self) -> QueueWorld:
        hand = Lending._hand

        def hand_and_tell(lending: Lending, items: Any, consumer: Any, now: float) -> bool:
            lent = hand(lending, items, consumer, now)
            # At the very end crashed processes come to theirs, too: that is nobody's business.
            if lent and not self.ended:
                for item in items:
                    self._lent(item.group, item)
            return lent

        send_all, ack_all = Queue.send_all, Group.ack_all

        def send_and_count(queue: Queue, messages: Any, *args: Any) -> bool:
            self.together["send"] += len(messages) > 1
            return send_all(queue, messages, *args)

        def ack_and_count(group: Group, items: Any, now: float) -> None:
            self.together["ack"] += len(items) > 1
            ack_all(group, items, now)

        fail = Broker.failed

        def fail_and_tell(broker: Broker, queue: Any, error: Any) -> None:
            self.trace.record("reopen", queue=queue.address, reason=str(error))
            self._begin_life()
            fail(broker, queue, error)

        with (
            capture_logs(),
            patch.object(Lending, "_hand", hand_and_tell),
            patch.object(Broker, "failed", fail_and_tell),
            patch.object(Queue, "send_all", send_and_count),
            patch.object(Group, "ack_all", ack_and_count),
        ):
            self.simulation.run(self._live())
        return self

    def _begin_life(self) -> None:
        """What the core knew is gone; it begins anew with what is on the disk."""
        self.lives += 1

    def _lent(self, group: Group, item: Any) -> None:
        record = item.record
        lent = Lent(
            self.loop.time(),
            self.lives,
            group.queue.address,
            group.state.name,
            record.id,
            number_of(record.payload),
            item.attempts,
        )
        self.trace.record("lent", message=lent.message, group=lent.group, attempt=lent.attempt)
        self.history.lent.append(lent)

    async def _live(self) -> None:
        self.start()
        self.people: list[Person] = self._people()
        self.administrator = Administrator(self, "admin")
        await self.network.on_host("admin", self._make())
        consumers = [one for one in self.people if isinstance(one, Consumer)]
        await asyncio.gather(*(self._on(one, one.join()) for one in consumers))
        acting = [self._on(one, one.act()) for one in self.people]  # type: ignore[attr-defined]
        latecomer = Consumer(self, "late0", JOBS, LATE, pushed=True)
        acting.append(self._on(latecomer, self._come_late(latecomer)))
        chaos = Chaos(self, self.simulation.stream("chaos"))
        await chaos.run(TROUBLE_S)
        chaos.end()
        self.quiet = True
        self.trace.record("quiet")
        await self.network.on_host("admin", self._drain())
        self.over = True
        await asyncio.gather(*acting)
        await self.network.on_host("admin", self._look())
        self.ended = True

    async def _come_late(self, latecomer: Consumer) -> None:
        await asyncio.sleep(self.random.uniform(0.2, 0.8) * TROUBLE_S)
        await latecomer.join()
        self.late[LATE] = self.loop.time()
        self.trace.record("late", group=LATE)
        # Not at once: others may be done with much of what it waits for.
        await asyncio.sleep(self.random.uniform(0.0, 0.3) * TROUBLE_S)
        await latecomer.act()

    def _people(self) -> list[Person]:
        return [
            Producer(self, "p0", idempotent=True),
            Producer(self, "p1", idempotent=True),
            Producer(self, "p2", idempotent=False),
            Consumer(self, "a0", JOBS, "a", pushed=True),
            Consumer(self, "a1", JOBS, "a", pushed=True),
            Consumer(self, "b0", JOBS, "b", pushed=False),
            Consumer(self, "b1", JOBS, "b", pushed=True),
            Consumer(self, "r0", JOBS, "red", pushed=True),
            Consumer(self, "l0", LINE, "", pushed=True),
            Consumer(self, "l1", LINE, "", pushed=False),
        ]

    def _on(self, person: Person, coroutine: Any) -> asyncio.Task[Any]:
        return self.network.on_host(person.name, coroutine)

    async def _make(self) -> None:
        options = {
            "ack_timeout_s": ACK_TIMEOUT_S,
            "attempts_max": self.attempts_max,
            "retry_s": 0.05,
            "retry_max_s": 1.0,
        }
        await self.administrator.create(JOBS, lanes=3, **options)
        await self.administrator.create(LINE, ordered=True, **options)

    def start(self) -> None:
        """Start the broker on its disk, again and again if the power is cut meanwhile."""
        while True:
            self.boots += 1
            self._begin_life()
            node = QueueNode(self, self.boots)
            self.trace.record("start", boot=self.boots)
            try:
                node.recover()
            except PowerCut:
                self.fs.crash()
                continue
            except OSError:
                # Whoever looks after it tries again.
                node.crash()
                self.fs.kill()
                continue
            self.node = node
            self._starting = self.network.on_host(NODE, node.start(), process=node.process)
            return

    def crash(self, *, power: bool) -> None:
        """End the broker at once, with its machine's power or alone, and start it again later."""
        node, self.node = self.node, None
        if node is None:
            return
        self.trace.record("crash", boot=self.boots, power=power)
        self.loop.stop_process(node.process)
        node.crash()
        if power:
            self.fs.crash()
        else:
            self.fs.kill()
        self.network.kill(NODE)
        delay_s = 0.0 if self.quiet else self.simulation.random.expovariate(2.0)
        # Whoever noticed may belong to the process that is no more.
        self.loop.call_later(delay_s, self.start, context=outside())

    def power_cut(self) -> None:
        """The disk noticed that the power is gone."""
        self.crash(power=True)

    def set_disk_s(self, delay_s: tuple[float, float]) -> None:
        """Let the disk be slower, or as fast as before."""
        self.disk_s = delay_s
        if self.node is not None:
            self.node.disk.delay_s = self.node.reading.delay_s = delay_s

    async def _drain(self) -> None:
        """Wait until all is delivered."""
        until = self.loop.time() + DRAIN_S
        figures: list[dict[str, Any]] = []
        while self.loop.time() < until:
            await asyncio.sleep(1)
            figures = [await self.administrator.figures(queue) for queue in self.queues]
            if all(_is_drained(one) for one in figures):
                return
        raise AssertionError(f"not drained after {DRAIN_S} s: {figures}")

    async def _look(self) -> None:
        """See what is left, before and after one more crash."""
        await asyncio.sleep(2 * ACK_TIMEOUT_S)
        await self._read_dead()
        assert self.node is not None
        before = self.node.snapshots()
        self.check_nothing_in_hand()
        self.crash(power=self.durable)
        await asyncio.sleep(1)
        assert self.node is not None
        after = self.node.snapshots()
        assert after == before, "what was recovered is not what was there"
        seen = list(self.history.dead)
        self.history.dead.clear()
        await self._read_dead()
        assert self.history.dead == seen, "dead letters changed in a crash"

    def check_nothing_in_hand(self) -> None:
        """What is done takes no memory any more."""
        assert self.node is not None
        left = self.node.left_over()
        assert not left, f"left over: {left}"

    async def _read_dead(self) -> None:
        for queue in self.queues:
            for letter in await self.administrator.dead(queue):
                death = letter["death"]
                self.history.dead.append(
                    Dead(
                        queue,
                        death["group"],
                        int(letter["message"]),
                        letter["data"][0],
                        death["attempts"],
                        death["reason"],
                    )
                )


def _is_drained(figures: dict[str, Any]) -> bool:
    groups = figures["groups"]
    waits = [one for one in groups if one["lag"] or one["in_hand"]]
    return not (figures["depth"] or figures["delayed"] or waits)
