"""Who comes and goes on the generated day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.times import LAST_WORD, RESTARTED, STOPPED
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND
from tests.pipeline.truth import minute

if TYPE_CHECKING:
    from tests.pipeline.day import Day


def plant_visits(day: Day) -> None:
    """Ten stay on n1 until it stops, five are on n3 when it dies; some come back soon."""
    for n in range(10):
        open_(day, "n1", DAY + HOUR, f"user/{n}")
    for n in range(5):
        open_(day, "n3", DAY + 2 * HOUR, f"user/x{n}")
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
        open_(day, there, opened, f"user/{user}")
        close(day, there, closed, f"user/{user}", opened)
        open_(day, "n1", closed + away, f"user/{user}", back=back)
    # The same name in another app is somebody else.
    open_(day, "n1", closed + 2 * SECOND, "user/soon", app="b", edge="websocket")
    for n in range(30):
        begin = DAY + 9 * HOUR + n * 500_000
        open_(day, "n2", begin, f"user/b{n}", app="b", edge="websocket")
        stay = 30 * SECOND + n * n * 10_000
        close(day, "n2", begin + stay, f"user/b{n}", begin, app="b", edge="websocket")


def plant_ends(day: Day) -> None:
    """A node that stops tells of its sessions' ends, but for one; nine come back, to n2."""
    for n in range(9):
        close(day, "n1", STOPPED - SECOND, f"user/{n}", DAY + HOUR)
        open_(day, "n2", RESTARTED, f"user/{n}", back=1)
    left = 1 + 4
    day.truth.sessions["a", "tcp", minute(STOPPED - 1)]["cut"] += left
    day.truth.sessions["b", "websocket", minute(STOPPED - 1)]["cut"] += 1


def open_(
    day: Day, node: str, true: int, user: str, app: str = "a", edge: str = "tcp", back: int = 0
) -> None:
    day.world.tell(node, true, "session_opened", app=app, edge=edge, target=user, session=user)
    day.truth.sessions[app, edge, minute(true)]["opened"] += 1
    day.truth.sessions[app, edge, minute(true)]["reconnects"] += back


def close(
    day: Day, node: str, true: int, user: str, opened: int, app: str = "a", edge: str = "tcp"
) -> None:
    told = {"app": app, "edge": edge, "target": user, "session": user, "reason": "1006"}
    day.world.tell(node, true, "session_closed", **told, came=opened)
    day.truth.sessions[app, edge, minute(true)]["closed"] += 1
    day.truth.stays[app, edge, minute(true)].append(true - opened)
