"""What must hold of every run with a broker, whatever its seed: the total queue, and order (Q4-Q6).

Of each send, acknowledgement and taking back it is known that it was done (ok), that it was not
(fail), or nothing (unknown: a crash or a time limit came first). After the run all is drained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.queue_history import FAIL, OK, Lent, Sent, Settled
from tests.simulation.queue_world import JOBS, QueueWorld

# What the clock of the simulation and whole milliseconds may differ by.
_ROUNDING_S = 0.002


def check(world: QueueWorld) -> None:
    check_nothing_was_made_up(world)
    check_nothing_is_lost(world)
    check_everybody_got_the_same(world)
    check_stored_once(world)
    check_delays(world)
    check_done_is_done(world)
    check_attempts(world)
    check_deaths(world)
    check_order(world)


def wanted_by(sent: Sent, group: str) -> bool:
    return group != "red" or sent.red


def check_nothing_was_made_up(world: QueueWorld) -> None:
    """Delivered and never sent: none. What was surely refused was not taken all the same."""
    for lent in world.history.lent:
        sent = world.history.sent.get(lent.number)
        assert sent is not None, f"{lent} was never sent"
        assert sent.outcome != FAIL, f"{lent} was refused: {sent}"
        assert lent.queue == sent.queue, f"{lent} was sent to another queue: {sent}"
        assert wanted_by(sent, lent.group), f"{lent} is not for that group"
        assert not sent.ids or lent.message in sent.ids, f"{lent} has another id: {sent}"
    handed = {(one.queue, one.group, one.message) for one in world.history.lent}
    for heard in world.history.heard:
        assert (heard.queue, heard.group, heard.message) in handed, f"{heard} was never handed out"
        assert heard.key == world.history.sent[heard.number].key


def check_nothing_is_lost(world: QueueWorld) -> None:
    """Acknowledged and not delivered: none, for any group; dead letters count."""
    settled = {(one.group, one.number) for one in _acks(world)}
    settled |= {(one.group, one.number) for one in world.history.dead}
    for sent in world.history.sent.values():
        if sent.outcome != OK or sent.cancelled not in (None, FAIL):
            continue
        late = [group for group, since in world.late.items() if sent.invoked > since]
        for group in [*world.groups[sent.queue], *(late if sent.queue == JOBS else ())]:
            if wanted_by(sent, group):
                assert (group, sent.number) in settled, f"group {group!r} never got {sent}"


def check_everybody_got_the_same(world: QueueWorld) -> None:
    """What nobody knows of was stored for all groups, or for none."""
    reached: dict[int, set[str]] = defaultdict(set)
    for group, number in [(one.group, one.number) for one in _acks(world)] + [
        (one.group, one.number) for one in world.history.dead
    ]:
        reached[number].add(group)
    for number, groups in reached.items():
        sent = world.history.sent[number]
        wanting = {group for group in world.groups[sent.queue] if wanted_by(sent, group)}
        assert groups - world.late.keys() == wanting, f"{sent} reached {groups} of {wanting}"


def check_stored_once(world: QueueWorld) -> None:
    """Q5: the same message retried is stored once, and its sender told the same id."""
    ids: dict[int, set[int]] = defaultdict(set)
    for lent in world.history.lent:
        ids[lent.number].add(lent.message)
    for dead in world.history.dead:
        ids[dead.number].add(dead.message)
    for sent in world.history.sent.values():
        found = ids[sent.number] | sent.ids
        assert len(found) <= 1, f"{sent} was stored as {found}"


def check_delays(world: QueueWorld) -> None:
    """Q2: nothing comes before it is due, or after it was taken back."""
    for lent in world.history.lent:
        sent = world.history.sent[lent.number]
        due = sent.invoked + sent.delay_s - _ROUNDING_S
        assert lent.at >= due, f"{lent} came before it was due: {sent}"
        assert sent.cancelled != OK, f"{lent} came although it was taken back: {sent}"


def check_done_is_done(world: QueueWorld) -> None:
    """What a consumer was told to be done with does not come again, whatever crashes."""
    answered: dict[tuple[str, str, int], float] = {}
    for ack in _acks(world):
        if ack.outcome == OK:
            answered.setdefault((ack.queue, ack.group, ack.message), ack.answered)
    for lent in world.history.lent:
        done = answered.get((lent.queue, lent.group, lent.message))
        assert done is None or lent.at <= done, f"{lent}: done with since {done}"


def check_attempts(world: QueueWorld) -> None:
    """Q6: each try is counted, across crashes, and there are no more than so many."""
    for lents in _by_message(world).values():
        assert len(lents) <= world.attempts_max, f"{len(lents)} tries: {lents[-1]}"
        numbers = [lent.attempt for lent in lents]
        assert numbers[-1] <= world.attempts_max, f"attempt {numbers[-1]}: {lents[-1]}"
        assert numbers == sorted(set(numbers)), f"counted {numbers}: {lents[-1]}"
        # A crash may count one too many, and nothing else does.
        skipped = numbers[-1] - len(numbers)
        assert skipped <= world.lives, f"counted {numbers}: {lents[-1]}"
        steps = {b.attempt - a.attempt for a, b in pairwise(lents) if a.life == b.life}
        assert steps <= {1}, f"counted {numbers} within a life: {lents[-1]}"


def check_deaths(world: QueueWorld) -> None:
    """A message dies once per group, after all its tries, and never after it was done."""
    seen: set[tuple[str, str, int]] = set()
    lents = _by_message(world)
    done = {(one.queue, one.group, one.message) for one in _acks(world) if one.outcome == OK}
    for dead in world.history.dead:
        what = (dead.queue, dead.group, dead.message)
        assert what not in seen, f"{dead} died twice"
        seen.add(what)
        assert what not in done, f"{dead} was done"
        assert dead.attempts == world.attempts_max, f"{dead} died too early or too late"
        tries = len(lents.get(what, []))
        assert tries + world.lives >= world.attempts_max, f"{dead} after {tries} tries"


def check_order(world: QueueWorld) -> None:
    """Q4, Q6: per key, and in an ordered queue as a whole, one after the other as stored."""
    finished: dict[tuple[str, str, int], float] = {}
    for ack in _acks(world):
        what = (ack.queue, ack.group, ack.message)
        finished[what] = min(ack.invoked, finished.get(what, ack.invoked))
    dead = {(one.queue, one.group, one.message) for one in world.history.dead}
    for line, lents in _lines(world).items():
        first_ids = list(dict.fromkeys(lent.message for lent in lents))
        assert first_ids == sorted(first_ids), f"{line}: {first_ids}"
        highest: Lent | None = None
        seen: dict[int, None] = {}
        for lent in lents:
            for other in seen:
                what = (lent.queue, lent.group, other)
                free = what in dead or finished.get(what, lent.at + 1) <= lent.at
                assert free or other >= lent.message, (
                    f"{line}: {lent} came while {other} was not done"
                )
            seen[lent.message] = None
            if highest is not None and lent.message < highest.message:
                assert lent.life > highest.life, f"{line}: {lent} came again after {highest}"
            else:
                highest = lent


def _lines(world: QueueWorld) -> dict[tuple[str, str, str], list[Lent]]:
    """What must not overtake each other."""
    lines: dict[tuple[str, str, str], list[Lent]] = defaultdict(list)
    for lent in world.history.lent:
        sent = world.history.sent[lent.number]
        if sent.queue in world.ordered:
            lines[lent.queue, lent.group, ""].append(lent)
        elif sent.key is not None:
            lines[lent.queue, lent.group, sent.key].append(lent)
    return lines


def _by_message(world: QueueWorld) -> dict[tuple[str, str, int], list[Lent]]:
    found: dict[tuple[str, str, int], list[Lent]] = defaultdict(list)
    for lent in world.history.lent:
        found[lent.queue, lent.group, lent.message].append(lent)
    return found


def _acks(world: QueueWorld) -> Iterator[Settled]:
    """Acknowledgements that the broker may have taken."""
    return (one for one in world.history.settled if one.kind == "ack" and one.outcome != FAIL)
