"""Two nodes for five minutes of an hour: what a run over it costs is what any run costs."""

from __future__ import annotations

from pathlib import Path

from tests.pipeline.traffic import DAY, MINUTE, SECOND, Node, World, save

MESSAGES, JOBS = 40, 20
# With a request.
PATHS = MESSAGES + JOBS + 1


def tell(one: Path, two: Path) -> None:
    """Topics that travel, a queue that is worked off, a request; a folder for each node."""
    world = World(Node("one"), Node("two", ahead=3 * SECOND))
    for name in ("one", "two"):
        world.start(name, DAY)
        world.live(name, DAY, DAY + 5 * MINUTE)
    world.beat(DAY, DAY + 5 * MINUTE)
    for n in range(MESSAGES):
        world.publish(DAY + MINUTE + n * SECOND, [("one", 0, 100), ("two", 700, 200)])
    for n in range(JOBS):
        at = DAY + 2 * MINUTE + n * SECOND
        job = world.store("one", at)
        world.work("one", at + 2000, job, "lent")
        world.work("one", at + 5000, job, "acked")
    world.ask("two", DAY + 3 * MINUTE, "two.1", 900)
    for name, folder in (("one", one), ("two", two)):
        world.tell(name, DAY + 5 * MINUTE, "node_stopped")
        save([row for row in world.rows if row["node"] == name], folder)
