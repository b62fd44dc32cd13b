"""What goes wrong on the generated day, or is at least not as usual, with what is true of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pipeline.chatter import plant_rooms
from tests.pipeline.letters import plant_letters, plant_queued
from tests.pipeline.pushes import plant_pushes
from tests.pipeline.times import BACK, KILLED, LAST_WORD
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Hop
from tests.pipeline.truth import Life
from tests.pipeline.visits import plant_ends, plant_visits

if TYPE_CHECKING:
    from tests.pipeline.day import Day


def plant(day: Day) -> None:
    _lost(day, DAY + 2 * HOUR)
    _unusual(day, DAY + 2 * HOUR + 20 * MINUTE)
    _over_the_hour(day)
    plant_queued(day, DAY + 9 * HOUR)
    plant_letters(day, DAY + 9 * HOUR)
    _crash(day)
    plant_rooms(day)
    plant_pushes(day)
    plant_visits(day)
    plant_ends(day)


def _lost(day: Day, begin: int) -> None:
    """Messages to topics and requests that are lost, come twice, come late."""
    world = day.world
    life = day.chain(begin + 50 * MINUTE, silent=("n3",))
    life.verdict("lost", "it did not come to n3", "n2", life.left["n2"], open=True)

    life = day.star(begin + 50 * MINUTE, silent=("n3",))
    life.verdict("lost", "it did not come to n3", "n1", life.left["n1"], open=True)

    life = day.chain(begin + 51 * MINUTE, delivered=False)
    dropped = life.left["n3"] + 5000
    about: dict[str, Any] = {"app": "a", "message": life.message, "n": 1}
    world.tell("n3", dropped, "dropped", **about, target="user/slow", reason="slow_consumer")
    life.verdict("lost", "dropped: slow_consumer", "n3", dropped)

    life = day.chain(begin + 52 * MINUTE, again=1000)
    came = life.left["n3"] + 900
    world.tell(
        "n3",
        came + 100,
        "published",
        **{**about, "message": life.message, "n": 2},
        target="topic/t",
        sender="user/s",
        came=came,
        came_from="n2",
    )
    # What is passed on twice is measured twice, too.
    life.step("hub", "last", 100)
    life.step("link", "last", came - life.left["n2"])
    life.arrive("n2", "n3", came - life.left["n2"])
    life.verdict("duplicated", "twice at n3", "n3", came + 100)

    life = day.chain(begin + 53 * MINUTE, slow=3 * SECOND)
    took = life.left["n3"] - (begin + 53 * MINUTE)
    life.verdict("late", f"took {round(took / 1000)} ms", "n3", life.left["n3"])

    life = day.request("n1", begin + 54 * MINUTE, took=None)
    life.verdict("lost", "nobody answered", "n1", begin + 54 * MINUTE, open=True)

    reason = "overload, outcome unknown"
    life = day.request("n1", begin + 55 * MINUTE, took=5000, reason=reason)
    life.verdict("unknown", f"answered: {reason}", "n1", begin + 55 * MINUTE + 5000)

    # A node that could not write down everything may have had it.
    world.tell("n2", begin - 30 * MINUTE, "missed", n=5, reason="overload")
    life = day.chain(begin - 29 * MINUTE, silent=("n2",))
    reason = "n2 could not write down everything"
    life.verdict("unknown", reason, "n1", life.left["n1"], open=True)


def _unusual(day: Day, begin: int) -> None:
    """What looks wrong and is not."""
    world = day.world
    # Written down twice, as when a file is copied again: nothing happened twice.
    day.chain(begin)
    world.rows.append(dict(world.rows[-1]))

    # A subscriber left meanwhile: who is promised something got it.
    life = day.travel("topic", begin + MINUTE, [Hop("n1", None, 0, 70, 1), Hop("n2", "n1")],
                      silent=("n2",), delivered=True)  # fmt: skip
    gone = {"app": "a", "target": "topic/t", "n": 1, "reason": "nobody"}
    world.tell("n2", life.left["n1"] + 300, "dropped", **gone, message=life.message)

    # Nobody at all was there.
    message, left = world.travel(
        begin + 2 * MINUTE, [Hop("n1", None, 0, 70), Hop("n2", "n1")], silent=("n2",)
    )
    world.tell("n2", left["n1"] + 300, "dropped", **gone, message=message)
    life = Life(day.truth, "topic", begin + 2 * MINUTE, begin + 2 * MINUTE)
    life.step("hub", "origin", 70)
    life.hand("n1", "n2", None)

    # To a user who was on n2 before, and is found on n3.
    hops = [Hop("n1", None, 0, 2000), Hop("n3", "n1", 500, 50, 1)]
    life = day.send(begin + 3 * MINUTE, hops)
    about = {"app": "a", "message": life.message, "target": "user/r"}
    true = begin + 3 * MINUTE
    world.tell("n1", true + 80, "sent", **about, sender="user/s", came=true, went_to=["n2"], n=0)
    world.tell("n2", true + 600, "dropped", **about, n=1, reason="unreachable")
    life.step("hub", "origin", 80)
    life.hand("n1", "n2", None)

    # To two at once: one id, a row for each.
    life = day.send(begin + 4 * MINUTE, [Hop("n1", None, 0, 90, 1)])
    true = begin + 4 * MINUTE
    about = {"app": "a", "message": life.message, "target": "user/q", "sender": "user/s"}
    world.tell("n1", true + 90, "sent", **about, came=true, n=1)
    life.step("hub", "origin", 90)

    # A request that another node hands to its provider: what counts is what whoever asked gets.
    true = begin + 5 * MINUTE
    label = f"n1.{world.id_at(true, 'n1')}"
    about = {"app": "a", "label": label}
    asked = {**about, "sender": "user/s", "target": "service/s"}
    world.tell("n1", true, "asked", **asked, went_to=["n2"])
    world.tell("n2", true + 300, "asked", **asked, came_from="n1")
    world.tell("n2", true + 900, "answered", **about, came=true + 300, came_from="n1")
    world.tell("n1", true + 1200, "answered", **about, came=true)
    life = Life(day.truth, "request", true, true, label=label, target="service/s")
    life.step("answer", "whole", 1200)
    life.judge(delivered=True)

    # Counted, not named.
    world.tell("n1", begin, "dropped", app="a", n=7, reason="slow_device")
    world.tell("n1", begin, "refused", app="a", n=7, reason="forbidden")
    world.tell("n1", begin, "hooked", app="a", reason="done")


def _over_the_hour(day: Day) -> None:
    """What begins in one hour and ends in the next; for n2 the next has begun already."""
    day.chain(DAY + HOUR - 50)
    day.star(DAY + HOUR - 50)
    day.queued("n2", DAY + HOUR - SECOND, wait=1_400_000, work=5 * SECOND)
    day.queued("n1", DAY + HOUR - SECOND, wait=1_400_000, work=5 * SECOND)
    day.request("n1", DAY + 2 * HOUR - 10_000, took=300_000)
    # A label without a number.
    true = DAY + 2 * HOUR - 10_000
    day.world.ask("n3", true, "odd", 700)
    told = day.world.nodes["n3"].clock(true)
    life = Life(day.truth, "request", told, true, label="odd", target="service/s")
    life.step("answer", "whole", 700)
    life.judge(delivered=True)


def _crash(day: Day) -> None:
    """What the third node had when it was killed, after its last word."""
    world = day.world
    died = "n3 died before it told"
    life = day.chain(KILLED - 20 * SECOND, silent=("n3",))
    life.verdict("unknown", died, "n2", life.left["n2"], open=True)
    life = day.request("n3", KILLED - 30 * SECOND, took=None)
    life.verdict("unknown", died, "n3", KILLED - 30 * SECOND, open=True)
    about: dict[str, Any] = {"target": "queue/n3"}
    for born in (KILLED - 25 * SECOND, KILLED - 24 * SECOND):
        life, ready = day.stored("n3", born, queue="queue/n3")
        world.work("n3", ready + 1000, life.message, "lent", **about)
        life.queue(ready + 1000, "lent", age=1000)
        life.step("wait", "whole", 1000)
        if born == KILLED - 25 * SECOND:
            reason = "n3 died, and it was not seen since"
            life.verdict("unknown", reason, "n3", ready + 1000, open=True)
            life.judge(delivered=False)
            continue
        # Handed out once more by the node that came back.
        world.work("n3", BACK + SECOND, life.message, "lent", **about, attempt=2)
        life.queue(BACK + SECOND, "lent")
        world.work("n3", BACK + 2 * SECOND, life.message, "acked", **about, attempt=2)
        life.queue(BACK + 2 * SECOND, "acked", change=-1)
        life.step("work", "whole", SECOND)
        life.step("done", "whole", BACK + 2 * SECOND - ready)
        life.judge(delivered=True)
    # A broker that goes on with its queue has it still.
    life, ready = day.stored("n3", KILLED - 22 * SECOND, queue="queue/kept")
    world.tell("n3", BACK + 500_000, "recovered", app="a", target="queue/kept", n=1)
    life.judge(delivered=False)
    life.verdict("late", "it still waits in its queue", "n3", ready, open=True)
    # Of what else came to it nobody knows.
    Life(day.truth, "node", 0, LAST_WORD, app=None, target=None, sender=None).verdict(
        "unknown",
        "it died: what came to it from then on it did not tell",
        "n3",
        LAST_WORD,
        open=True,
    )
