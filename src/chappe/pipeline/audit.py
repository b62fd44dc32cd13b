"""Audit: one row for each message that is lost, duplicated, late, or of which nobody knows.

What can be said from a message's own path is settled. What depends on whether something will still
come, or on what became of a node, is judged anew in every run, over the open paths of all hours:
few.

Queues and requests are told of whole, before anybody else is told. So it is exact what is said of
them, of nodes that were killed as well:

what              is                                       unknown if
a queue's         in it, until it is done or dead          its node died, and no broker went on with
message                                                    the queue since; its hour was forgotten
a request         open, until the node of whoever asked    that node died before, or says so: the
                  says how it ended                        one that it asked died, or a provider
a note of push    open for devices that were there, until  a device had it and did not acknowledge
                  they acknowledge it or it expires        it, or the comet that handed it died

All else is told a few times a second: of a node that died, what came to it after its last sign of
life is unknown. That span of time has a row of its own, of the family `node`: there may have been
messages of which nobody else knows.

What is still told of an hour that was forgotten is put aside, so nothing follows from there being
no word of its messages since then. What was known of them before counts.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from chappe.pipeline.hours import hour_us
from chappe.pipeline.kinds import PUSH
from chappe.pipeline.lives import Life
from chappe.pipeline.options import Options
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.unheard import FORGOTTEN, Said, is_sent, unheard
from chappe.pipeline.verdicts import Row, Verdict, ready_at, settled, time_of, was_taken
from chappe.pipeline.whereabouts import missing, untold_by

_ABOUT = ("app", "family", "message", "label", "sender", "target", "born")
_OF_PATHS = ("hour", *_ABOUT, "ready", "delivered", "ended", "open", "suspect", "hops")
_SCHEMA = arrow_schema(TABLES["audit"])
OPEN = "open"
# Fewer are judged where the run is planned: that takes less time than a plan of Spark's.
FEW = 2_000
# An app's queue.
Queue = tuple[str, str]


class Known(NamedTuple):
    """What is known of nodes and queues, besides what paths say; as large as the cluster."""

    # Of each node, in the order in which they began.
    lives: Mapping[str, list[Life]]
    # Until when anybody told anything.
    horizon: int | None
    # When a broker last went on with a queue, and when it was last removed with messages.
    queues: Mapping[Queue, tuple[int | None, int | None]]
    # When the youngest message was ready that was handed out, of those that are not empty.
    frontiers: Mapping[Queue, int]
    # All before each of these hours was forgotten one day; in order.
    forgotten: Sequence[str] = ()

    def forgotten_by(self, hour: str) -> str | None:
        """Before which hour all was forgotten, if this one was with it; of several, the first."""
        place = bisect_right(self.forgotten, hour)
        return self.forgotten[place] if place < len(self.forgotten) else None

    def life_at(self, node: str, time: int) -> Life | None:
        """The life of a node that a time is in: the last that began before it."""
        lives = self.lives.get(node, [])
        place = bisect_right(lives, time, key=lambda life: life.began)
        return lives[place - 1] if place else None


def by_node(lives: Iterable[Life]) -> dict[str, list[Life]]:
    """Lives as they are looked for."""
    found = defaultdict(list)
    for life in sorted(lives, key=lambda life: life.began):
        found[life.node].append(life)
    return dict(found)


def audit(touched: DataFrame, others: DataFrame, known: Known, options: Options) -> DataFrame:
    """The audit of the odd paths of hours that were touched, and of the open ones of all others."""
    paths = touched.select(*_OF_PATHS, fn.lit(True).alias("touched")).unionByName(
        others.where("open").select(*_OF_PATHS, fn.lit(False).alias("touched"))
    )
    judged = paths.mapInArrow(
        functools.partial(_judged, known=known, options=options), TABLES["audit"]
    )
    rows = untold(known)
    if not rows:
        return judged
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    return judged.unionByName(touched.sparkSession.createDataFrame(table, TABLES["audit"]))


def _judged(
    batches: Iterable[pa.RecordBatch], known: Known, options: Options
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [row for path in batch.to_pylist() for row in rows_of(path, known, options)]
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def audit_few(odd: pa.Table, touched: Set[str], known: Known, options: Options) -> pa.Table:
    """The same of all odd paths, where there are not enough of them to trouble Spark."""
    hours = odd["hour"].cast(pa.string())
    paths = odd.select(_OF_PATHS).append_column(
        "touched", pc.is_in(hours, value_set=pa.array(sorted(touched), pa.string()))
    )
    wanted = paths.filter(pc.or_(paths["touched"], paths["open"]))
    told = pa.Table.from_pylist(untold(known), schema=_SCHEMA)
    return pa.concat_tables(
        [told, pa.Table.from_batches(_judged(wanted.to_batches(), known, options), _SCHEMA)]
    )


def rows_of(path: Row, known: Known, options: Options) -> Iterator[Row]:
    """What the audit says of one path."""
    about = {name: path[name] for name in _ABOUT}
    if path["touched"]:
        for verdict in settled(path, options):
            yield {"hour": path["hour"], **about, **verdict._asdict()}
    if path["open"]:
        for verdict in unsettled(path, known, options):
            yield {"hour": OPEN, **about, **verdict._asdict()}


def untold(known: Known) -> list[Row]:
    """The spans of time of which nobody knows what happened on a node."""
    said = {
        "hour": OPEN,
        "family": "node",
        "verdict": "unknown",
        "reason": "it died: what came to it from then on it did not tell",
    }
    return [
        {**said, "node": life.node, "at": life.alive, "born": life.alive}
        for lives in known.lives.values()
        for life in lives
        if life.died
    ]


def unsettled(path: Row, known: Known, options: Options) -> list[Verdict]:
    """What an open path says together with what is known of nodes and queues: each verdict once, of
    several nodes that it did not come to the first."""
    found: dict[str, str] = {}
    judged = (_judge(path, who, what, known, options) for who, what in _waits(path))
    for said in (*judged, *unheard(path, known, options)):
        if said is not None:
            verdict, reason = said
            found[verdict] = min(reason, found.get(verdict, reason))
    last = path["hops"][-1]
    return [Verdict(*said, last["node"], time_of(last)) for said in found.items()]


def _waits(path: Row) -> Iterator[tuple[str, str]]:
    """Whose word an open path waits for, and of what."""
    hops, family = path["hops"], path["family"]
    if family == "queue":
        yield hops[-1]["node"], family
    elif family == "request":
        # The node of whoever asked; if that had no time to tell of it, the other says which it is.
        asked = [hop["came_from"] or hop["node"] for hop in hops if hop["kind"] == "asked"]
        yield (asked[0] if asked else hops[-1]["node"]), family
    else:
        if family != PUSH:
            yield from ((taker, "arrive") for taker in missing(hops))
        elif is_sent(path):
            return
        yield from ((giver, "tell") for giver in untold_by(hops))


def _judge(path: Row, who: str, what: str, known: Known, options: Options) -> Said | None:
    """What it means that there is no word of a node since the path's last."""
    since, life = path["ended"], known.life_at(who, path["ended"])
    grace = options.grace_ms * 1000
    if life is None and _later(known.horizon, since, grace):
        return "unknown", f"{who} never told anything of that time"
    if life is not None and path["hour"] in life.missed:
        return "unknown", f"{who} could not write down everything"
    if what == "queue":
        died = life is not None and life.died
        return _judge_queued(path, who, died, known, options)
    forgotten = known.forgotten_by(path["hour"])
    nothing = None if forgotten is None else FORGOTTEN
    if life is None:
        return nothing
    patience = grace if what == "request" else options.sla_ms * 1000
    if _told_on(life, since, patience, forgotten):
        return _silent_on(who, what)
    return ("unknown", f"{who} died before it told") if life.died else nothing


def _told_on(life: Life, since: int, patience: int, forgotten: str | None) -> bool:
    """Whether a node told all that it would have told of a message, before its hour was
    forgotten if it was."""
    if forgotten is None:
        return life.stopped is not None or _later(life.alive, since, patience)
    alive = life.alive_before(forgotten)
    stopped = alive is not None and life.stopped is not None and life.stopped <= alive
    return stopped or _later(alive, since, patience)


def _silent_on(who: str, what: str) -> Said:
    """What is said of a node that told on, but not of this."""
    if what == "arrive":
        return "lost", f"it did not come to {who}"
    if what == "request":
        return "lost", "nobody answered"
    return "unknown", f"{who} had it and does not tell of it"


def _judge_queued(path: Row, who: str, died: bool, known: Known, options: Options) -> Said | None:
    """The same of a message in a queue; its node died, or did not."""
    queue, since = (path["app"], path["target"]), path["ended"]
    recovered, removed = known.queues.get(queue, (None, None))
    forgotten = known.forgotten_by(path["hour"])
    # What was done between a time when its hour was forgotten and that, nobody knows.
    heard = forgotten is None or _later(hour_us(forgotten), removed)
    if _later(removed, since) and heard:
        return "lost", "its queue was removed"
    if forgotten is not None:
        return FORGOTTEN
    # A broker went on with its queue: there it is again, and waits since then.
    back = died and _later(recovered, since)
    if died and not back:
        return "unknown", f"{who} died, and it was not seen since"
    ready, taken = ready_at(path), was_taken(path)
    if not taken and _later(known.frontiers.get(queue), ready, options.overtaken_ms * 1000):
        return "lost", "much younger ones of its queue were handed out"
    waits_since = recovered if back and taken else ready
    if (back or not taken) and _later(known.horizon, waits_since, options.queue_sla_ms * 1000):
        return "late", "it still waits in its queue"
    return None


def _later(time: int | None, since: int | None, by: int = 0) -> bool:
    """Whether a time is known and later than another by more than that."""
    return time is not None and since is not None and time - since > by
