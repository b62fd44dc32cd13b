"""What becomes of messages in queues on the generated day, besides that they are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.times import END
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND
from tests.pipeline.truth import Life, minute

if TYPE_CHECKING:
    from tests.pipeline.day import Day


def plant_queued(day: Day, begin: int) -> None:
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


def plant_letters(day: Day, begin: int) -> None:
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
    # It is as young as it was.
    day.truth.ready["a", "queue/again", minute(replayed + SECOND)] = [ready]
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
