"""What must hold of every run of a cluster, whatever its seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from chappe.client import Dropped
from tests.simulation.cluster_person import ACK_TIMEOUT_S, KEPT, QUEUE, Deed, Device
from tests.simulation.cluster_truth import Taking
from tests.simulation.cluster_world import ClusterWorld

# No node is paused for longer: by then what was put into an outbox was written, or never will be.
_UNWRITTEN_S = 40.0
# How long a queue's message may be on its way to its consumer.
_TRANSIT_S = 5.0


def check(world: ClusterWorld) -> None:
    """Check a whole run."""
    check_verdicts(world)
    check_nothing_came_twice(world)
    for device in world.devices:
        check_nothing_is_missing_silently(device)
    check_jobs(world)


def check_verdicts(world: ClusterWorld) -> None:
    """H5: `ok` means in the outbox of a live session; a definite error, that it is in none."""
    for deed in world.deeds:
        if deed.kind == "send":
            _check_verdict(world, deed, deed.to, deed.outcome)
        elif deed.kind == "many":
            _check_many(world, deed)


def _check_many(world: ClusterWorld, deed: Deed) -> None:
    verdicts = getattr(deed.result, "verdicts", None) or {}
    for to in deed.to.split():
        verdict = "ok" if deed.outcome == "ok" else verdicts.get(to)
        if verdict == "ok":
            _check_verdict(world, deed, to, "ok")


def _check_verdict(world: ClusterWorld, deed: Deed, to: str, outcome: str) -> None:
    message = world.truth.words.get(deed.word, 0)
    user = world.user_of(to)
    takings = [one for one in world.truth.taken.get(message, ()) if one.user == user]
    if outcome == "fail":
        assert not takings, f"{deed} was refused, and taken all the same"
    elif outcome == "ok":
        before = [one for one in takings if one.sessions and one.at <= deed.answered]
        assert before, f"{deed} was answered ok, and no session took it before"
        assert any(_was_kept(world, message, one) for one in before), f"{deed} was lost"


def _was_kept(world: ClusterWorld, message: int, taking: Taking) -> bool:
    """Whether one session that took a message was written it, or all were closed before."""
    truth = world.truth
    if any(one.message == message for s in taking.sessions for one in truth.written[s]):
        return True
    ends = [truth.lives[session].closed for session in taking.sessions]
    return all(end is not None and end - taking.at <= _UNWRITTEN_S for end in ends)


def check_nothing_came_twice(world: ClusterWorld) -> None:
    """No message is written twice to a session; of a history, none is given twice to a client.

    Other messages a device may get twice that leaves one node for another while they are on their
    way to both.
    """
    for session, writings in world.truth.written.items():
        times = Counter(one.message for one in writings if one.to != QUEUE)
        twice = [message for message, count in times.items() if count > 1]
        assert not twice, f"{world.truth.lives[session]} was written {twice} twice"
    for device in world.devices:
        times = Counter(message.id for message in device.received if message.offset)
        assert not [m for m, n in times.items() if n > 1], f"{device.name} got a message twice"


def check_nothing_is_missing_silently(device: Device) -> None:
    """Offsets of a topic's history follow each other, unless the client was told of a gap."""
    told = [gap for gap in device.gaps if gap.topic == KEPT or isinstance(gap.notice, Dropped)]
    last = None
    for place, message in enumerate(device.received):
        if message.to != KEPT or not message.offset:
            continue
        known = any(gap.begin <= place for gap in told)
        told = [gap for gap in told if gap.place > place]
        if last is not None and not known:
            assert message.offset == last + 1, (
                f"{device.name} got {message.offset} after {last}, and was told of no gap"
            )
        last = message.offset


def check_jobs(world: ClusterWorld) -> None:
    """What is done does not come again, and nothing is with two consumers at a time."""
    given: dict[int, list[tuple[float, str]]] = {}
    for session, writings in world.truth.written.items():
        for one in writings:
            if one.to == QUEUE:
                given.setdefault(one.message, []).append((one.at, session))
    done: dict[int, float] = {}
    for deed in world.deeds:
        if deed.kind == "ack" and deed.outcome == "ok":
            done.setdefault(int(deed.to), deed.answered)
    for message, at in done.items():
        # Lent before, it may come later: what is on its way cannot be called back.
        after = [time for time in world.truth.lent[message] if time > at]
        assert not after, f"{message} was done at {at}, and lent again at {after}"
    for message, times in given.items():
        times.sort()
        for (at, session), (again, _) in pairwise(times):
            assert _was_free(world, message, session, at, again), (
                f"{message} was given to {session} at {at}, and again at {again}"
            )


def _was_free(world: ClusterWorld, message: int, session: str, at: float, again: float) -> bool:
    """Whether a session had lost a job between two times: handed back, cut off, or too slow."""
    life = world.truth.lives[session]
    if again - at >= ACK_TIMEOUT_S - _TRANSIT_S:
        return True
    if life.closed is not None and life.closed <= again:
        return True
    if any(life.node in ends and at - _UNWRITTEN_S <= t <= again for t, *ends in world.truth.downs):
        return True
    # With the queue, what is lent moves to its new node, and is given to who asks there.
    if any(at - _UNWRITTEN_S <= moved <= again for moved in world.truth.moves):
        return True
    devices = {device.name for device in world.devices if device.user == life.address}
    return any(
        deed.device in devices
        and deed.invoked <= again
        and (
            (deed.kind == "nack" and deed.to == str(message))
            # What comes for a fetch that nobody awaits any more is handed back.
            or (deed.kind == "fetch" and deed.outcome != "ok" and deed.answered <= again)
        )
        for deed in world.deeds
    )
