"""A day of traffic on three nodes whose clocks differ, with everything that can go wrong planted.

`Day.rows` is what nodes told, in the order in which it came to be known; the rest is the truth, by
the one right clock, found without the pipeline.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

from chappe.pipeline.options import Options
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Node, Row, World

# When the third node is killed, and when it is back.
KILLED = DAY + 12 * HOUR + 30 * MINUTE
BACK = KILLED + 10 * MINUTE
END = DAY + 24 * HOUR - 5 * MINUTE
# (family, hop, role, minute of birth)
Step = tuple[str, str, str, int]


class Day:
    """The day, and what is true of it."""

    def __init__(self, seed: int = 5) -> None:
        self.options = Options()
        self.world = World(Node("n1"), Node("n2", 3 * SECOND), Node("n3", -2 * SECOND))
        self.steps: dict[Step, list[int]] = defaultdict(list)
        self.verdicts: set[tuple[str, int | str, str]] = set()
        self.stored: Counter[int] = Counter()
        self.finished: Counter[int] = Counter()
        self.handed: Counter[tuple[str, str]] = Counter()
        self.arrived: Counter[tuple[str, str]] = Counter()
        self.bad: list[Row] = []
        self._random = Random(seed)
        self._lives()
        for hour in range(24):
            self._hour(DAY + hour * HOUR)
        self._crash()
        self._sessions()
        self._nonsense()
        self.rows = [*self.world.rows, *self.bad]

    def _lives(self) -> None:
        world = self.world
        for name in ("n1", "n2"):
            world.start(name, DAY)
            world.live(name, DAY, END, MINUTE)
        world.start("n3", DAY)
        world.live("n3", DAY, KILLED, MINUTE)
        world.start("n3", BACK)
        world.live("n3", BACK, END, MINUTE)
        world.tell("n3", END, "node_stopped")
        world.beat(DAY, END, 20 * SECOND, away={"n3": (KILLED, BACK)})
        for node in ("n1", "n2"):
            world.tell(node, DAY, "link_up", peer="n3")
            world.tell(node, KILLED + 5 * SECOND, "link_down", peer="n3", reason="silent")
            world.tell(node, BACK, "link_up", peer="n3")

    def _hour(self, begin: int) -> None:
        for n in range(20):
            self._topic(begin + (n * 2 + 1) * MINUTE + self._random.randrange(SECOND))
        for n in range(10):
            self._queued(begin + n * 5 * MINUTE + self._random.randrange(SECOND))
        for n in range(5):
            took = self._random.randrange(500, 9000)
            true = begin + n * MINUTE
            self.world.ask("n1", true, f"n1.{begin}{n}", took)
            self._step("request", "answer", "whole", true, took)
        if begin == DAY + 2 * HOUR:
            self._plant(begin)
        if begin == DAY + 9 * HOUR:
            self._plant_queued(begin)

    def _step(self, family: str, hop: str, role: str, born: int, us: int) -> None:
        self.steps[family, hop, role, born - born % MINUTE].append(us)

    def _topic(self, true: int, *, slow: int = 0, lost_at: str | None = None) -> int:
        """From n1 over n2 to n3, unless n3 is away: then to n2 only."""
        names = ["n1", "n2"] if KILLED - SECOND < true < BACK + SECOND else ["n1", "n2", "n3"]
        draw = self._random.randrange
        via = [(name, draw(100, 900) * bool(n), draw(20, 200)) for n, name in enumerate(names)]
        via[1] = (via[1][0], via[1][1] + slow, via[1][2])
        roles = ["origin", *["relay"] * (len(via) - 2), "last"]
        message = self.world.publish(true, via, lost_at=lost_at)
        for place, (name, travel, inside) in enumerate(via):
            if place:
                self.handed[names[place - 1], name] += 1
            if name == lost_at:
                return message
            if place:
                self.arrived[names[place - 1], name] += 1
                self._step("topic", "link", roles[place], true, travel)
            self._step("topic", "hub", roles[place], true, inside)
        self._step("topic", "delivery", "whole", true, sum(t + i for _n, t, i in via))
        return message

    def _queued(self, true: int, *, wait: int | None = None, acks: int = 1) -> int:
        """Stored at n2, handed out after a while, done once or more."""
        draw = self._random.randrange
        wait, work = draw(1000, SECOND) if wait is None else wait, draw(1000, SECOND)
        message = self.world.store("n2", true)
        ready = true + 500
        self._step("queue", "store", "whole", true, 500)
        self.stored[true + 500 - (true + 500) % MINUTE] += 1
        self.world.work("n2", ready + wait, message, "lent")
        self._step("queue", "wait", "whole", true, wait)
        for again in range(acks):
            done = ready + wait + work + again
            self.world.work("n2", done, message, "acked")
            self._step("queue", "work", "whole", true, work + again)
            self._step("queue", "done", "whole", true, wait + work + again)
        self.finished[done - done % MINUTE] += 1
        return message

    def _plant(self, begin: int) -> None:
        """Messages to topics and requests that go wrong."""
        verdict = self.verdicts.add
        verdict(("lost", self._topic(begin + 50 * MINUTE, lost_at="n3"), "it did not come to n3"))
        message = self._topic(begin + 51 * MINUTE)
        self.world.tell(
            "n3",
            begin + 51 * MINUTE + 5000,
            "dropped",
            app="a",
            message=message,
            target="user/slow",
            n=1,
            reason="slow_consumer",
        )
        verdict(("lost", message, "dropped: slow_consumer"))
        message = self._topic(begin + 52 * MINUTE)
        twice = self.world.rows[-1]
        self.world.rows.append({**twice, "serial": 1_000_000})
        self._double(begin + 52 * MINUTE, twice)
        verdict(("duplicated", message, "twice at n3"))
        late = self._topic(begin + 53 * MINUTE, slow=3 * SECOND)
        took = self.steps["topic", "delivery", "whole", begin + 53 * MINUTE][-1]
        verdict(("late", late, f"took {round(took / 1000)} ms"))
        self.world.ask("n1", begin + 54 * MINUTE, "n1.lost", None)
        verdict(("lost", "n1.lost", "nobody answered"))
        # Written down twice, as when a file is copied again: nothing happened twice.
        self._topic(begin + 55 * MINUTE)
        self.world.rows.append(dict(self.world.rows[-1]))

    def _double(self, true: int, row: Row) -> None:
        """What is passed on twice is measured twice, too."""
        self._step("topic", "hub", "last", true, row["at"] - row["came"])
        travel = self.steps["topic", "link", "last", true - true % MINUTE][-1]
        self._step("topic", "link", "last", true, travel)
        self.arrived["n2", "n3"] += 1

    def _plant_queued(self, begin: int) -> None:
        """Messages of queues that go wrong."""
        verdict = self.verdicts.add
        true = begin + 51 * MINUTE
        late = self._queued(true, wait=90 * SECOND)
        verdict(("late", late, "waited 90000 ms"))
        verdict(("duplicated", self._queued(begin + 53 * MINUTE, acks=2), "done twice by g"))
        lost = self.world.store("n2", begin + 54 * MINUTE)
        self._step("queue", "store", "whole", begin + 54 * MINUTE, 500)
        self.stored[begin + 54 * MINUTE] += 1
        verdict(("lost", lost, "much younger ones of its queue were handed out"))
        died = self.world.store("n2", begin + 55 * MINUTE)
        self._step("queue", "store", "whole", begin + 55 * MINUTE, 500)
        self.stored[begin + 55 * MINUTE] += 1
        for attempt in (1, 2, 3):
            when = begin + 55 * MINUTE + attempt * SECOND
            self.world.work("n2", when, died, "lent", attempt=attempt)
            kind = "died" if attempt == 3 else "returned"
            self.world.work("n2", when + 5000, died, kind, attempt=attempt, reason="nack")
        self._step("queue", "wait", "whole", begin + 55 * MINUTE, SECOND - 500)
        self.finished[begin + 55 * MINUTE] += 1

    def _crash(self) -> None:
        """What the third node had when it was killed; its last word was at the minute before."""
        world, verdict = self.world, self.verdicts.add
        unknown = self._topic(KILLED - 20 * SECOND, lost_at="n3")
        verdict(("unknown", unknown, "n3 died before it told"))
        world.ask("n3", KILLED - 30 * SECOND, "n3.unknown", None)
        verdict(("unknown", "n3.unknown", "n3 died before it told"))
        for n, born in enumerate((KILLED - 25 * SECOND, KILLED - 24 * SECOND)):
            message = world.store("n3", born)
            self._step("queue", "store", "whole", born, 500)
            self.stored[born - born % MINUTE] += 1
            world.work("n3", born + 1500, message, "lent")
            self._step("queue", "wait", "whole", born, 1000)
            if n == 0:
                verdict(("unknown", message, "n3 died, and it was not seen since"))
                continue
            # Handed out once more by the node that came back.
            world.work("n3", BACK + SECOND, message, "lent", attempt=2)
            world.work("n3", BACK + 2 * SECOND, message, "acked", attempt=2)
            self._step("queue", "work", "whole", born, SECOND)
            self._step("queue", "done", "whole", born, BACK + 2 * SECOND - born - 500)
            self.finished[BACK] += 1

    def _sessions(self) -> None:
        """Ten stay on n1 all day; five are on n3 when it dies; one comes back soon, one late."""
        world = self.world
        about = {"app": "a", "edge": "tcp"}
        for n in range(10):
            world.tell(
                "n1", DAY + HOUR, "session_opened", **about, target=f"user/{n}", session=f"{n}"
            )
        for n in range(5):
            world.tell(
                "n3",
                DAY + 2 * HOUR,
                "session_opened",
                **about,
                target=f"user/x{n}",
                session=f"x{n}",
            )
        for user, away in (("soon", 10 * SECOND), ("late", 5 * MINUTE)):
            who = {**about, "target": f"user/{user}", "session": user}
            opened, closed = DAY + 4 * HOUR, DAY + 4 * HOUR + 59 * MINUTE + 55 * SECOND
            world.tell("n1", opened, "session_opened", **who)
            world.tell("n1", closed, "session_closed", **who, came=opened, reason="1006")
            world.tell("n1", closed + away, "session_opened", **who)

    def _nonsense(self) -> None:
        good = self.world.rows[0]
        for change in (
            {"kind": None},
            {"kind": "nonsense"},
            {"share": 0.0},
            {"node": None},
            {"kind": "lent", "message": 5},
            {"at": 5},
        ):
            self.bad.append({**good, "serial": 1_000_000 + len(self.bad), **change})
