"""What goes wrong on the generated day, or is at least not as usual, with what is true of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pipeline.times import BACK, END, KILLED, LAST_WORD, RESTARTED, STOPPED
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, Hop
from tests.pipeline.truth import Life, minute

if TYPE_CHECKING:
    from tests.pipeline.day import Day


def plant(day: Day) -> None:
    _lost(day, DAY + 2 * HOUR)
    _unusual(day, DAY + 2 * HOUR + 20 * MINUTE)
    _over_the_hour(day)
    _queues(day, DAY + 9 * HOUR)
    _letters(day, DAY + 9 * HOUR)
    _crash(day)
    _sessions(day)
    _sessions_end(day)


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


def _queues(day: Day, begin: int) -> None:
    """Messages in queues that are late, done twice, lost, delayed, taken back, tried again."""
    true = begin + 51 * MINUTE
    life = day.queued("n2", true, wait=90 * SECOND)
    life.verdict("late", "waited 90000 ms", "n2", true + 500 + 90 * SECOND)

    true = begin + 53 * MINUTE
    life = day.queued("n2", true, wait=1000, work=2000)
    again = true + 500 + 4000
    day.world.work("n2", again, life.message, "acked")
    life.queue(again, "acked")
    life.step("work", "whole", 3000)
    life.step("done", "whole", 4000)
    life.verdict("duplicated", "done twice by g", "n2", again)

    true = begin + 54 * MINUTE
    life, ready = day.stored("n2", true)
    life.judge(delivered=False)
    reason = "much younger ones of its queue were handed out"
    life.verdict("lost", reason, "n2", ready, open=True)

    true = END - 3 * MINUTE
    life, ready = day.stored("n2", true)
    life.judge(delivered=False)
    life.verdict("late", "it still waits in its queue", "n2", ready, open=True)

    true = begin + 20 * MINUTE
    life, ready = day.stored("n2", true, due=true + 10 * MINUTE)
    _try(day, life, ready + 200, since=ready, end="acked", work=3000)
    life.step("done", "whole", 3200)
    life.judge(delivered=True)

    # Taken back: promised to nobody any more.
    life, ready = day.stored("n2", true, due=true + 30 * MINUTE)
    told = {"app": "a", "message": life.message, "target": "queue/q"}
    day.world.tell("n2", true + 5 * MINUTE, "cancelled", **told)
    life.queue(true + 5 * MINUTE, "cancelled", change=-1)

    life, ready = day.stored("n2", begin + 22 * MINUTE)
    _try(day, life, ready + 1000, since=ready, end="returned", work=5000)
    _try(day, life, ready + SECOND, end="acked", work=4000, attempt=2)
    life.step("done", "whole", SECOND + 4000)
    life.judge(delivered=True)


def _letters(day: Day, begin: int) -> None:
    """Dead letters: thrown away by one or all together, sent again, of one group of two."""
    later = DAY + 12 * HOUR
    life, ready = day.stored("n2", begin + 55 * MINUTE)
    _try(day, life, ready + SECOND, since=ready, end="returned", work=5000)
    _try(day, life, ready + 2 * SECOND, end="returned", work=5000, attempt=2)
    _try(day, life, ready + 3 * SECOND, end="died", work=5000, attempt=3)
    life.judge(delivered=False)
    told = {"app": "a", "message": life.message, "target": "queue/q"}
    day.world.tell("n2", later + 5 * MINUTE, "purged", **told, n=1)
    life.queue(later + 5 * MINUTE, "purged")

    many = begin + 58 * MINUTE
    day.world.tell("n2", many, "purged", app="a", target="queue/q", n=3)
    day.truth.queues["a", "queue/q", minute(many)]["purged"] += 3

    queue = {"queue": "queue/again"}
    life, ready = day.stored("n2", begin + 56 * MINUTE, **queue)
    _try(day, life, ready + 1000, since=ready, end="died", work=5000, **queue)
    replayed = later + 6 * MINUTE
    told = {"app": "a", "message": life.message, "target": "queue/again"}
    day.world.tell("n2", replayed, "replayed", **told)
    life.queue(replayed, "replayed", change=1)
    _try(day, life, replayed + SECOND, since=replayed, end="acked", work=SECOND, **queue)
    life.step("done", "whole", replayed + 2 * SECOND - ready)
    life.judge(delivered=True)

    life = day.queued("n2", begin + 57 * MINUTE, queue="queue/both", wait=1000, work=2000)
    ready = begin + 57 * MINUTE + 500
    both = {"queue": "queue/both", "group": "h"}
    life.queue(ready + 3000, "acked", change=1)
    day.truth.queues["a", "queue/both", minute(ready)]["acked"] -= 1
    _try(day, life, ready + 7000, since=ready, end="died", work=3 * MINUTE, **both)


def _try(
    day: Day,
    life: Life,
    lent: int,
    *,
    end: str,
    work: int,
    since: int | None = None,
    attempt: int = 1,
    queue: str = "queue/q",
    group: str = "g",
) -> None:
    """A group is handed a message, for the first time since then, and says how it went."""
    told = {"attempt": attempt, "target": queue, "group_name": group}
    day.world.work("n2", lent, life.message, "lent", **told)
    age = None if since is None else lent - since
    life.queue(lent, "lent", age=age)
    if age is not None:
        life.step("wait", "whole", age)
    reason = {} if end == "acked" else {"reason": "nack"}
    day.world.work("n2", lent + work, life.message, end, **told, **reason)
    life.queue(lent + work, end, change=0 if end == "returned" else -1)
    if end == "acked":
        life.step("work", "whole", work)


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


def _sessions(day: Day) -> None:
    """Ten stay on n1 until it stops, five are on n3 when it dies; some come back soon."""
    for n in range(10):
        _open(day, "n1", DAY + HOUR, f"user/{n}")
    for n in range(5):
        _open(day, "n3", DAY + 2 * HOUR, f"user/x{n}")
    day.truth.sessions["a", "tcp", minute(LAST_WORD)]["cut"] += 5
    opened = DAY + 2 * HOUR + 10 * MINUTE
    closed = DAY + 2 * HOUR + 59 * MINUTE + 55 * SECOND
    for user, there, away, back in (
        ("soon", "n1", 10 * SECOND, 1),
        ("late", "n1", 5 * MINUTE, 0),
        # By the nodes' own clocks this one came before it went.
        ("other", "n2", SECOND, 1),
        ("far", "n3", 55 * SECOND, 1),
    ):
        _open(day, there, opened, f"user/{user}")
        _close(day, there, closed, f"user/{user}", opened)
        _open(day, "n1", closed + away, f"user/{user}", back=back)
    # The same name in another app is somebody else.
    _open(day, "n1", closed + 2 * SECOND, "user/soon", app="b", edge="websocket")
    for n in range(30):
        begin = DAY + 9 * HOUR + n * 500_000
        _open(day, "n2", begin, f"user/b{n}", app="b", edge="websocket")
        stay = 30 * SECOND + n * n * 10_000
        _close(day, "n2", begin + stay, f"user/b{n}", begin, app="b", edge="websocket")


def _sessions_end(day: Day) -> None:
    """A node that stops tells of its sessions' ends, but for one; nine come back, to n2."""
    for n in range(9):
        _close(day, "n1", STOPPED - SECOND, f"user/{n}", DAY + HOUR)
        _open(day, "n2", RESTARTED, f"user/{n}", back=1)
    left = 1 + 4
    day.truth.sessions["a", "tcp", minute(STOPPED - 1)]["cut"] += left
    day.truth.sessions["b", "websocket", minute(STOPPED - 1)]["cut"] += 1


def _open(
    day: Day, node: str, true: int, user: str, app: str = "a", edge: str = "tcp", back: int = 0
) -> None:
    day.world.tell(node, true, "session_opened", app=app, edge=edge, target=user, session=user)
    day.truth.sessions[app, edge, minute(true)]["opened"] += 1
    day.truth.sessions[app, edge, minute(true)]["reconnects"] += back


def _close(
    day: Day, node: str, true: int, user: str, opened: int, app: str = "a", edge: str = "tcp"
) -> None:
    told = {"app": app, "edge": edge, "target": user, "session": user, "reason": "1006"}
    day.world.tell(node, true, "session_closed", **told, came=opened)
    day.truth.sessions[app, edge, minute(true)]["closed"] += 1
    day.truth.stays[app, edge, minute(true)].append(true - opened)
