"""Dead letters: listed, replayed, purged, bounded (Q9)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import StorageError
from chappe.queues.inspection import browse
from chappe.queues.options import QueueLimits
from chappe.wire.ops import Inspect
from tests.queues.rig import JOBS, Bench, held_bench, people


def kill(bench: Bench, who: Any, *messages: int) -> None:
    """Let a consumer fail with messages until they are dead."""
    for message in messages:
        while (who, message) in bench.loans.lent:
            bench.nack(who, message)


def dead(bench: Bench, **fields: Any) -> list[Any]:
    pages: list[Any] = []
    browse(
        bench.queue,
        Inspect(to=JOBS, n=100, dead=True, **fields),
        pages.append,
        bench.refusals.append,
    )
    return [int(one["message"]) for one in pages[0]["messages"]]


def replay(bench: Bench, ids: list[int] | None = None) -> list[int]:
    counts: list[int] = []
    bench.queue.letters.replay(ids, counts.append, bench.refusals.append)
    bench.settle()
    return counts


def purge(bench: Bench, ids: list[int] | None = None) -> list[int]:
    counts: list[int] = []
    bench.queue.letters.purge(ids, counts.append, bench.refusals.append)
    bench.settle()
    return counts


def test_after_so_many_attempts_a_message_is_a_dead_letter_and_its_sender_told() -> None:  # Q6
    bench = Bench(attempts_max=16)
    (a,) = people("a")
    bench.consume(a)
    bench.send(num=7)
    kill(bench, a, 1)
    assert a.attempts == list(range(1, 17))
    (letter,) = bench.outlet.letters
    assert letter.death is not None
    assert (letter.num, letter.sender, letter.death.attempts) == (7, "user:a", 16)
    assert (letter.death.lane, letter.death.seq, letter.death.group) == (1, 1, "")
    assert bench.queue.state.depth() == 0
    assert dead(bench) == [1]


def test_what_is_read_of_them_is_what_was_sent_and_why_it_died() -> None:
    bench = Bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send(payload=b'{"n":1}', key="k", tags=["t"], headers={"h": "v"}, num=3)
    kill(bench, a, 1)
    pages: list[Any] = []
    browse(bench.queue, Inspect(to=JOBS, n=1, dead=True), pages.append, bench.refusals.append)
    ((letter,),) = (page["messages"] for page in pages)
    assert bytes(letter["data"]) == b'{"n":1}'
    assert (letter["key"], letter["tags"], letter["headers"]) == ("k", ["t"], {"h": "v"})
    assert (letter["num"], letter["from"]) == (3, "user:a")
    death = letter["death"]
    assert (death["reason"], death["attempts"], death["lane"]) == ("handed back", 1, 1)


def test_to_replay_sends_them_again_in_order_with_attempts_anew() -> None:
    bench = Bench(attempts_max=2)
    a, b = people("ab")
    bench.consume(a)
    bench.send(3)
    kill(bench, a, 1, 2, 3)
    bench.leave(a)
    assert replay(bench) == [3]
    assert dead(bench) == []
    bench.consume(b)
    assert (b.got, b.attempts) == ([1, 2, 3], [1, 1, 1])


def test_to_replay_some_leaves_the_others() -> None:
    bench = Bench(attempts_max=1)
    a, b = people("ab")
    bench.consume(a)
    bench.send(3)
    kill(bench, a, 1, 2, 3)
    bench.leave(a)
    assert replay(bench, [2]) == [1]
    assert dead(bench) == [1, 3]
    bench.consume(b)
    assert b.got == [2]


def test_to_name_what_is_no_dead_letter_is_refused_by_name() -> None:
    bench = Bench(attempts_max=1)
    assert replay(bench, [99]) == []
    assert purge(bench, [98]) == []
    assert [error.reason.partition(":")[0] for error in bench.refusals] == ["message"] * 2
    assert "99" in bench.refusals[0].reason


def test_none_are_replayed_and_purged_without_complaint() -> None:
    bench = Bench()
    assert (replay(bench), purge(bench)) == ([0], [0])


def test_one_is_replayed_only_to_the_group_it_died_in() -> None:  # Q8
    bench = Bench(attempts_max=1)
    a, b = people("ab")
    bench.consume(a, group="a")
    bench.consume(b, group="b")
    bench.send()
    bench.ack(b, 1)
    kill(bench, a, 1)
    replay(bench)
    assert (a.got, b.got) == ([1, 1], [1])


def test_one_for_a_consumer_that_never_came_waits_for_it_again_and_goes_to_nobody_else() -> None:
    bench = Bench(await_s=10.0)
    a, x = people("ax")
    bench.consume(a)
    bench.send(consumers=["x"])
    bench.later(11)
    assert dead(bench) == [1]
    replay(bench)
    assert a.got == []
    bench.queue.members.register("x", "x", None, None)
    bench.consume(x, group="x")
    assert x.got == [1]


def test_to_purge_forgets_them_and_frees_their_bytes() -> None:
    bench = Bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send(3, b"12345")
    kill(bench, a, 1, 2, 3)
    assert bench.loans.bytes_held == 15
    assert purge(bench, [2]) == [1]
    assert (dead(bench), bench.loans.bytes_held) == ([1, 3], 10)
    assert purge(bench) == [2]
    assert (dead(bench), bench.loans.bytes_held) == ([], 0)


@pytest.mark.parametrize("volatile", [True, False])
def test_when_there_are_too_many_the_oldest_go_and_are_counted(volatile: bool) -> None:
    limits = QueueLimits(dead_max=2, volatile_dead_max=2)
    bench = (
        Bench(None, limits, attempts_max=1) if volatile else held_bench(limits, attempts_max=1)[0]
    )
    (a,) = people("a")
    bench.consume(a)
    bench.send(5)
    kill(bench, a, 1, 2, 3, 4, 5)
    assert dead(bench) == [4, 5]
    assert bench.outlet.drops == [("dead_letters", 1)] * 3
    assert len(bench.outlet.letters) == 5


def test_they_are_browsed_both_ways_a_page_at_a_time() -> None:
    bench = Bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send(5)
    kill(bench, a, 1, 2, 3, 4, 5)
    purge(bench, [3])
    assert dead(bench) == [1, 2, 4, 5]
    assert dead(bench, reverse=True) == [5, 4, 2, 1]


def test_they_survive_a_restart_and_can_be_replayed_then() -> None:  # Q11
    bench, _ = held_bench(attempts_max=2, retry_s=0.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send(2)
    kill(bench, a, 1, 2)
    bench.restart()
    assert dead(bench) == [1, 2]
    assert replay(bench) == [2]
    bench.restart()
    assert dead(bench) == []
    (b,) = people("b")
    bench.consume(b)
    assert b.got == [1, 2]


def test_letters_that_cannot_be_read_are_refused_and_stay() -> None:
    bench, storage = held_bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    kill(bench, a, 1)
    storage.read_error = StorageError("segment 3: damaged")
    assert replay(bench) == []
    assert len(bench.refusals) == 1
    assert bench.queue.letters.count == 1


def test_a_replay_that_there_is_no_room_for_is_refused_and_the_letters_stay() -> None:
    bench = Bench(None, QueueLimits(awaited_max=1), await_s=10.0)
    bench.send(consumers=["x"])
    bench.later(11)
    bench.send(consumers=["y"])
    assert replay(bench) == []
    assert [error.code for error in bench.refusals] == ["overload"]
    assert dead(bench) == [1]


def test_an_expired_message_is_a_dead_letter() -> None:
    bench = Bench(expire_s=10.0)
    (a,) = people("a")
    bench.send(2)
    bench.later(9)
    bench.send()
    bench.later(2)
    bench.consume(a)
    assert a.got == [3]
    assert dead(bench) == [1, 2]
    reasons = [letter.death and letter.death.reason for letter in bench.outlet.letters]
    assert reasons == ["expired"] * 2
    replay(bench)
    assert a.got == [3, 1, 2]


def test_letters_that_are_not_durable_yet_are_not_replayed_and_nobody_waits_for_them() -> None:
    bench, _ = held_bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    bench.nack(a, 1, held=True)
    bench.loop.settle()
    assert replay(bench) == [0]
    assert dead(bench) == [1]
