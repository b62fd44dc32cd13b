"""The post between roles: in one process directly, else by datagrams that are taken once (R1)."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from chappe.message import Message
from chappe.rooms import addressee, forgeries, outbox, post
from chappe.rooms.options import RoomsOptions
from chappe.rooms.post import LocalPost, Post
from chappe.rooms.role import Endpoint, Source
from chappe.wire.datagram import Kind, Seal, datagram_key
from chappe.wire.rooms import Card, Counted, Deliver, Goodbye, RoomOp

A, B, C = ("10.0.0.1", 7404), ("10.0.0.2", 7404), ("::1", 7404)
SECRET = b"s" * 32
Wire = tuple[Endpoint, Endpoint, bytes]


def op(number: int, size: int = 10) -> Deliver:
    message = Message(number, "user:a", "room:r", 1, b"x" * size, binary=True)
    return Deliver("shop", message, False, 1, 2)


class Net:
    """Posts, and what is on its way between them."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.rng = Random(seed)
        self.options = RoomsOptions(**options)
        self.posts: dict[Endpoint, Post] = {}
        self.got: dict[Endpoint, list[tuple[RoomOp, Source]]] = {}
        # All that was ever sent: what somebody who listens has.
        self.overheard: list[Wire] = []
        self.stirred: list[Endpoint] = []
        self.now = 100.0

    def start(self, me: Endpoint, **other: Any) -> Post:
        """Start a process, or another one in its place."""
        values = {"secret": SECRET, "cluster": "chappe", "name": f"node-{me[0]}"} | other
        self.posts[me] = Post(
            options=values.pop("options", self.options),
            me=me,
            entropy=self.rng.randbytes,
            on_waiting=lambda: self.stirred.append(me),
            **values,
        )
        self.got[me] = []
        return self.posts[me]

    def flush(self, me: Endpoint) -> list[Wire]:
        sent = [(me, to, data) for to, data in self.posts[me].flush(self.now)]
        self.overheard += sent
        return sent

    def carry(self, sent: list[Wire]) -> None:
        for source, to, data in sent:
            if to in self.posts:
                self.got[to] += self.posts[to].take(data, source, self.now)

    def settle(self) -> None:
        """Carry everything until there is nothing more."""
        for _ in range(100):
            sent = [wire for me in self.posts for wire in self.flush(me)]
            if not sent:
                return
            self.carry(sent)
        raise AssertionError("they never stop")

    def numbers(self, me: Endpoint) -> list[int]:
        return [one.message.id for one, _ in self.got[me]]


@pytest.fixture
def net() -> Net:
    made = Net()
    for me in (A, B, C):
        made.start(me)
    return made


def proven(net: Net, source: Endpoint = A, to: Endpoint = B) -> None:
    net.posts[source].send(to, op(1))
    net.settle()
    assert net.numbers(to) == [1]
    net.got[to].clear()


def kinds(sent: list[Wire]) -> list[Kind]:
    return [Kind(data[1]) for _, _, data in sent]


def test_what_is_said_to_another_arrives_with_the_name_of_who_said_it(net):
    said = [op(1), Goodbye(Card("g", 1, "::1", 2)), Counted(1, 2, 3, 4)]
    for one in said:
        net.posts[A].send(B, one)
    net.settle()
    assert net.got[B] == [(one, Source(A, "node-10.0.0.1")) for one in said]
    assert net.posts[A].name_of(B) == "node-10.0.0.2"
    assert net.posts[A].name_of(C) == ""


def test_an_answer_goes_to_where_its_source_says(net):
    net.posts[C].send(A, op(1))
    net.settle()
    (_, source), *_ = net.got[A]
    net.posts[A].send(source.endpoint, op(2))
    net.settle()
    assert net.got[C] == [(op(2), Source(A, "node-10.0.0.1"))]


def test_the_endpoint_of_ipv6_has_two_parts_and_answers_go_to_all_four(net):
    net.posts[A].send(C, op(1))
    ((_, _, hello),) = net.flush(A)
    net.posts[C].take(hello, ("fe80::1", 9, 0, 3), net.now)
    ((to, welcome),) = net.posts[C].flush(net.now)
    assert to == ("fe80::1", 9, 0, 3)
    net.posts[A].take(welcome, ("fe80::2", 9, 0, 3), net.now)
    net.settle()
    assert net.got[C] == [(op(1), Source(A, "node-10.0.0.1"))]


def test_what_is_said_in_a_tick_goes_out_together_and_in_order(net):
    proven(net)
    for number in range(5):
        net.posts[A].send(B, op(number))
    sent = net.flush(A)
    assert kinds(sent) == [Kind.PARCEL]
    net.carry(sent)
    assert net.numbers(B) == list(range(5))
    assert net.flush(A) == []


@given(st.lists(st.integers(0, 9000), max_size=30), st.sampled_from([512, 1400, 9000]))
def test_ops_of_any_size_arrive_in_order_and_no_datagram_is_too_large(sizes, datagram_bytes):
    net = Net(datagram_bytes=datagram_bytes, unproven_bytes_max=1_000_000)
    net.start(A), net.start(B)
    for number, size in enumerate(sizes):
        net.posts[A].send(B, op(number, size))
    net.settle()
    assert [one for one, _ in net.got[B]] == [op(at, size) for at, size in enumerate(sizes)]
    assert all(len(data) <= datagram_bytes for _, _, data in net.overheard)


def reliable(number: int) -> Deliver:
    return Deliver("shop", op(number).message, True, 1, 2)


def test_copies_of_a_reliable_message_are_not_lost_with_one_datagram(net):  # R13
    proven(net)
    for turn in range(3):
        for number in (7, 8):
            net.posts[A].send_all([B], reliable(number))
        net.posts[A].send(B, op(10 + turn))
    sent = net.flush(A)
    assert kinds(sent) == [Kind.PARCEL] * 3
    # Each datagram has one of each, beside what else there is.
    for wire in sent:
        net.got[B].clear()
        net.carry([wire])
        assert len(net.numbers(B)) == 3
        assert {7, 8} < set(net.numbers(B))
    # Others, and copies in another tick, are gathered as ever.
    for number in (7, 8, 9):
        net.posts[A].send(B, reliable(number))
        net.posts[A].send(B, op(20))
        net.posts[A].send(B, op(20))
    assert kinds(net.flush(A)) == [Kind.PARCEL]


def test_copies_that_wait_for_a_ticket_are_no_more_than_they_are(net):
    net.start(A)
    for _ in range(3):
        net.posts[A].send(B, reliable(7))
    net.flush(A)
    net.start(B)
    net.now += 0.1
    net.settle()
    assert net.numbers(B) == [7, 7, 7]
    assert not net.posts[A].dropped["unproven"]


def test_copies_of_many_ticks_that_wait_for_a_ticket_leave_in_different_datagrams(net):  # R13
    for turn in range(3):
        for number in (7, 8):
            net.posts[A].send(B, reliable(number))
        net.posts[A].send(B, op(10 + turn))
        hello = net.flush(A)
        net.now += 0.01
    net.carry(hello)
    net.carry(net.flush(B))
    # The last copy is said in the tick in which the ticket is there.
    net.posts[A].send(B, reliable(7))
    sent = net.flush(A)
    assert kinds(sent) == [Kind.PARCEL] * 4
    for wire in sent:
        net.got[B].clear()
        net.carry([wire])
        assert net.numbers(B).count(7) == 1
        assert net.numbers(B).count(8) <= 1
    # From then on only those of one tick are told apart.
    net.posts[A].send(B, reliable(7))
    assert kinds(net.flush(A)) == [Kind.PARCEL]


def test_copies_that_waited_too_long_are_counted_and_remembered_within_a_bound(net, monkeypatch):
    monkeypatch.setattr(addressee, "COPIES_MAX", 5)
    for number in range(40):
        # Each once: no copy of another ends what is remembered.
        net.posts[A].send(B, reliable(number))
        net.flush(A)
        waits = net.posts[A]._outbox._addressees.get(B)
        assert len(waits.copies) <= 5
    net.now += addressee.WAITING_S
    net.flush(A)
    assert net.posts[A].dropped["unproven"] == 40
    assert waits.waiting_bytes == 0


def test_the_same_for_many_is_encoded_once(net, monkeypatch):
    encoded = []
    encode = post.encode_room_op
    monkeypatch.setattr(post, "encode_room_op", lambda one: encoded.append(one) or encode(one))
    net.posts[A].send_all((A, B, C), op(1))
    net.settle()
    assert encoded == [op(1)]
    assert net.numbers(B) == net.numbers(C) == [1]
    ((local, source),) = net.posts[A].drain_local()
    assert local == op(1)
    assert source == Source(A, "node-10.0.0.1")
    net.posts[A].send_all((A,), op(2))
    assert encoded == [op(1)]


def test_it_is_told_whether_something_goes_whole(net):  # R5
    edge = next(size for size in range(2000) if not net.posts[A].send(B, op(1, size)))
    net.settle()
    for size, wires in ((edge - 1, [Kind.PARCEL]), (edge, [Kind.PIECE] * 2)):
        whole = len(wires) == 1
        assert net.posts[A].send(B, op(2, size)) is whole
        assert kinds(net.flush(A)) == wires
        assert net.posts[A].send_all((A, B), op(2, size)) is whole
        assert net.posts[A].send_all((A,), op(2, size))
        assert net.posts[A].send(A, op(2, size))
        net.flush(A)


def test_what_is_said_to_itself_is_handed_out_as_it_is_in_order_and_once(net):
    said = [op(number) for number in range(3)]
    for one in said:
        net.posts[A].send(A, one)
    drained = net.posts[A].drain_local()
    assert all(one is other for one, (other, _) in zip(said, drained, strict=True))
    assert net.posts[A].drain_local() == []
    assert net.flush(A) == []


def test_it_is_told_once_that_something_waits_and_again_after_a_flush(net):
    net.posts[A].send(B, op(1))
    net.posts[A].send(A, op(1))
    net.posts[A].send(C, op(1))
    assert net.stirred == [A]
    net.posts[A].drain_local()
    net.flush(A)
    assert net.stirred == [A]
    net.posts[A].send(A, op(1))
    assert net.stirred == [A, A]
    net.flush(A)
    assert net.stirred == [A, A, A], "something is left"


def test_answers_and_what_a_ticket_sets_free_are_told_of_too(net):
    net.posts[A].send(B, op(1))
    hello = net.flush(A)
    net.carry(hello)
    assert net.stirred == [A, B]
    net.carry(net.flush(B))
    assert net.stirred == [A, B, A]
    assert kinds(net.flush(A)) == [Kind.PARCEL]


def test_a_post_alone_needs_no_secret_and_knows_nobody_else():
    stirred: list[int] = []
    alone = LocalPost(me=A, name="a", on_waiting=lambda: stirred.append(1))
    alone.send_all((A, B), op(1))
    assert alone.drain_local() == [(op(1), Source(A, "a"))]
    assert alone.dropped == {"nowhere": 1}
    assert alone.flush(0.0) == alone.take(b"x", B, 0.0) == []
    assert stirred == [1]
    assert alone.due == math.inf


def test_nothing_is_sent_to_who_has_not_proven_itself_but_a_hello(net):
    net.posts[A].send(B, op(1, 200))
    (hello,) = net.flush(A)
    assert kinds([hello]) == [Kind.HELLO]
    assert b"x" * 200 not in hello[2]


def test_what_has_waited_goes_before_what_is_said_later(net):
    net.posts[A].send(B, op(1))
    net.carry(net.flush(A))
    net.carry(net.flush(B))
    net.posts[A].send(B, op(2))
    net.settle()
    assert net.numbers(B) == [1, 2]


def test_a_hello_is_repeated_less_and_less_often_while_something_waits(net):
    heard = []
    del net.posts[B]
    post_a = net.posts[A]
    end = net.now + 10
    while net.now < end:
        post_a.send(B, op(1))
        heard += [net.now] * kinds(net.flush(A)).count(Kind.HELLO)
        net.now = min(post_a.due, net.now + 0.5)
    gaps = [round(b - a, 3) for a, b in pairwise(heard)]
    assert gaps[:6] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64]
    assert set(gaps[6:]) == {1.0}


def test_who_answers_nothing_for_long_is_named_once_in_a_while(net, monkeypatch):
    del net.posts[B]
    with capture_logs() as logged:
        monkeypatch.setattr(outbox, "log", structlog.get_logger())
        # As long as somebody who has died is in the registry.
        for seconds, lines in ((15, 0), (30, 1), (110, 2)):
            while net.now < 100 + seconds:
                net.posts[A].send(B, op(1))
                net.flush(A)
                net.now += 0.25
            assert len(logged) == lines
    assert "10.0.0.2:7404 answers no HELLO" in logged[0]["reason"]
    assert "the same cluster.secret" in logged[0]["reason"]


def test_nobody_is_asked_any_more_once_nothing_waits(net):
    del net.posts[B]
    net.posts[A].send(B, op(1))
    net.flush(A)
    while net.posts[A].due < math.inf:
        net.now = max(net.now, net.posts[A].due)
        net.flush(A)
        assert net.now < 110
    assert net.posts[A].dropped["unproven"] == 1


def test_who_has_just_started_is_asked_at_once(net):
    del net.posts[B]
    while net.now < 105:
        net.posts[A].send(B, op(1))
        net.flush(A)
        net.now += 0.25
    assert net.posts[A].due > net.now
    net.start(B).send(A, op(2))
    net.carry(net.flush(B))
    sent = net.flush(A)
    assert Kind.HELLO in kinds(sent)
    net.carry(sent)
    net.settle()
    assert net.numbers(B)


def test_what_waits_for_a_ticket_is_bounded_in_bytes_and_the_oldest_go():
    net = Net(unproven_bytes_max=1000)
    net.start(A)
    for number in range(100):
        net.posts[A].send(B, op(number, 100))
        net.flush(A)
    net.start(B)
    net.now += 1
    net.settle()
    numbers = net.numbers(B)
    assert numbers == list(range(100 - len(numbers), 100))
    assert 5 <= len(numbers) <= 10
    assert net.posts[A].dropped["unproven"] == 100 - len(numbers)


def test_one_op_waits_however_large_it_is():
    net = Net(unproven_bytes_max=1)
    net.start(A), net.start(B)
    net.posts[A].send(B, op(1, 60_000))
    net.settle()
    assert net.numbers(B) == [1]


def test_what_has_waited_for_seconds_is_not_sent_any_more(net):
    del net.posts[B]
    net.posts[A].send(B, op(1))
    net.flush(A)
    net.now += addressee.WAITING_S
    net.start(B)
    net.posts[A].send(B, op(2))
    net.settle()
    assert net.numbers(B) == [2]


def test_a_tick_has_a_bound_for_each_addressee(net, monkeypatch):
    proven(net)
    monkeypatch.setattr(addressee, "GATHERED_BYTES_MAX", 1000)
    for number in range(20):
        net.posts[A].send(B, op(number, 100))
    net.settle()
    assert 5 <= len(net.got[B]) <= 10
    assert net.posts[A].dropped["gathered_full"] == 20 - len(net.got[B])
    net.posts[A].send(B, op(77))
    net.settle()
    assert net.numbers(B)[-1] == 77


def test_what_waits_for_the_process_itself_is_bounded(net, monkeypatch):
    monkeypatch.setattr(post, "LOCAL_OPS_MAX", 2)
    for number in range(3):
        net.posts[A].send(A, op(number))
    assert [one.message.id for one, _ in net.posts[A].drain_local()] == [0, 1]
    assert net.posts[A].dropped == {"local_full": 1}


def test_an_op_that_nobody_would_put_together_is_not_sent(net):
    proven(net)
    net.posts[A].send(B, op(1, 64 * 1024 + post.op_bytes_max(net.options)))
    net.posts[A].send(B, op(2))
    net.settle()
    assert net.numbers(B) == [2]
    assert net.posts[A].dropped["oversize"] == 1


@pytest.mark.parametrize("to", [("10.0.0.9", 0), ("10.0.0.9", 65_536), ("", 1), ("h" * 256, 1)])
def test_what_is_no_endpoint_is_sent_nothing(net, to):
    net.posts[A].send(to, op(1))
    assert net.flush(A) == []
    assert net.posts[A].dropped == {"nowhere": 1}


@given(st.lists(st.integers(0, 200), max_size=40), st.randoms())
def test_datagrams_doubled_and_shuffled_are_each_taken_once(sizes, rng):
    net = Net(datagram_bytes=512)
    net.start(A), net.start(B)
    proven(net)
    sent = []
    for number, size in enumerate(sizes):
        net.posts[A].send(B, op(number, size * 10))
        sent += net.flush(A)
    sent *= 2
    rng.shuffle(sent)
    net.carry(sent)
    assert sorted(net.numbers(B)) == list(range(len(sizes)))
    assert net.posts[B].refused["replayed"] == len(sent) // 2


def test_a_datagram_more_than_a_window_late_is_refused(net):
    proven(net)
    sent = []
    for number in range(1026):
        net.posts[A].send(B, op(number))
        sent += net.flush(A)
    net.carry(sent[1:])
    net.carry(sent[:1])
    assert net.numbers(B) == list(range(1, 1026))
    assert net.posts[B].refused == {"replayed": 1}


@given(st.integers(0, 2**32), st.data())
def test_a_bit_that_flips_in_any_datagram_is_refused_and_disturbs_nobody(seed, data):
    net = Net(seed)
    net.start(A), net.start(B)
    net.posts[A].send_all((B,), op(1, 3000))
    sent: list[Wire] = []
    for _ in range(10):
        sent = [wire for me in net.posts for wire in net.flush(me)]
        for source, to, whole in sent:
            changed = bytearray(whole)
            bit = data.draw(st.integers(0, len(changed) * 8 - 1))
            changed[bit // 8] ^= 1 << bit % 8
            before = net.posts[to].refused.total()
            assert net.posts[to].take(bytes(changed), source, net.now) == []
            assert net.posts[to].refused.total() == before + 1
        net.carry(sent)
    assert net.numbers(B) == [1]
    assert all(
        set(one.refused) <= {"mac", "version", "kind", "unasked"} | {"garbage"}
        for one in net.posts.values()
    )


@given(st.lists(st.binary(max_size=400) | st.binary(max_size=60).map(lambda b: b"\x01\x04" + b)))
def test_garbage_is_counted_and_never_answered(datagrams):
    net = Net()
    net.start(A)
    for data in datagrams:
        assert net.posts[A].take(data, B, net.now) == []
    assert net.flush(A) == []
    assert net.posts[A].refused.total() == net.posts[A].datagrams_in == len(datagrams)


def replay_all(net: Net) -> None:
    """Say again all that was overheard, to everybody; nothing may come of it."""
    before = {me: len(got) for me, got in net.got.items()}
    for source, _, data in list(net.overheard):
        for me in net.posts:
            net.got[me] += net.posts[me].take(data, source, net.now)
            for to, answer in net.posts[me].flush(net.now):
                assert len(answer) <= len(data)
                # What a stranger gets out of it, it may use.
                if to in net.posts:
                    net.got[to] += net.posts[to].take(answer, me, net.now)
    assert {me: len(got) for me, got in net.got.items()} == before


def talk(net: Net) -> None:
    for number, (source, to) in enumerate([(A, B), (B, A), (A, C), (C, B)]):
        net.posts[source].send(to, op(number, 3000 * (number % 2)))
    net.settle()


def test_nothing_that_was_overheard_is_taken_again(net):
    talk(net)
    assert sum(map(len, net.got.values())) == 4
    replay_all(net)


@pytest.mark.parametrize("again", [(A,), (B,), (A, B, C)])
def test_nothing_that_was_overheard_is_taken_again_by_who_was_restarted(net, again):
    talk(net)
    for me in again:
        net.start(me)
    replay_all(net)
    talk(net)
    replay_all(net)


def test_nothing_is_taken_again_by_who_forgot_the_sender():
    net = Net(peers_max=2)
    others = [(f"10.0.1.{n}", 7404) for n in range(3)]
    for me in (A, B, *others):
        net.start(me)
    net.posts[A].send(B, op(1))
    net.settle()
    for number, other in enumerate(others):
        net.posts[other].send(B, op(2 + number))
        net.settle()
    assert net.posts[B].peers == (0, 2)
    replay_all(net)
    assert net.posts[B].refused["ticket"] > 0
    net.posts[A].send(B, op(9))
    net.settle()
    # The first one is lost: only with it A hears that it is a stranger.
    net.posts[A].send(B, op(10))
    net.settle()
    assert net.numbers(B)[-1] == 10
    replay_all(net)


def test_a_replayed_hello_and_stranger_disturb_nobody(net):
    proven(net)
    hello = next(wire for wire in net.overheard if wire[2][1] == Kind.HELLO)
    net.start(B)
    net.posts[A].send(B, op(2))
    net.settle()
    stranger = next(wire for wire in net.overheard if wire[2][1] == Kind.STRANGER)
    net.posts[A].send(B, op(3))
    net.settle()
    net.carry([hello, stranger] * 3)
    net.settle()
    net.posts[A].send(B, op(4))
    assert kinds(net.flush(A)) == [Kind.PARCEL]
    net.posts[A].send(B, op(5))
    net.settle()
    assert net.numbers(B) == [3, 5]


def test_a_restarted_receiver_is_said_hello_to_again(net):
    proven(net)
    net.start(B)
    net.posts[A].send(B, op(2))
    net.settle()
    assert net.numbers(B) == []
    assert net.posts[B].refused == {"ticket": 1}
    net.posts[A].send(B, op(3))
    net.settle()
    assert net.numbers(B) == [3]


def test_a_restarted_sender_is_another_life(net):
    proven(net)
    net.start(A)
    net.posts[A].send(B, op(2))
    net.settle()
    assert net.numbers(B) == [2]
    assert net.posts[B].peers == (0, 2)


def test_a_welcome_that_nobody_asked_for_is_ignored(net):
    proven(net)
    welcome = next(wire for wire in net.overheard if wire[2][1] == Kind.WELCOME)
    net.carry([welcome])
    assert net.posts[A].refused == {"unasked": 1}


def test_a_stranger_is_answered_with_no_more_than_it_sent(net):
    proven(net)
    net.posts[A].send(B, Counted(0, 0, 0, 0))
    (wire,) = net.flush(A)
    net.start(B)
    net.carry([wire])
    ((to, answer),) = net.posts[B].flush(net.now)
    assert to == A
    assert answer[1] == Kind.STRANGER
    assert len(answer) <= len(wire[2])


@given(st.text("nü", min_size=1, max_size=100), st.text("nü", min_size=1, max_size=100))
def test_no_answer_to_who_is_not_proven_is_larger_than_what_it_answers(name, other):
    net = Net()
    net.start(A, name=name), net.start(B, name=other)
    net.posts[A].send(B, op(1))
    asked = net.flush(A)
    net.carry(asked)
    answers = net.flush(B)
    assert [len(data) for _, _, data in answers] <= [len(data) for _, _, data in asked]
    assert kinds(answers) == [Kind.WELCOME]


def test_answers_of_a_tick_are_bounded(net, monkeypatch):
    monkeypatch.setattr(post, "ANSWERS_MAX", 3)
    net.posts[A].send(B, op(1))
    hello = net.flush(A)
    net.carry(hello * 10)
    assert len(net.flush(B)) == 3
    assert net.posts[B].dropped == {"answers_full": 7}


@pytest.mark.parametrize("other", [{"secret": b"t" * 32}, {"cluster": "other"}])
def test_another_secret_or_cluster_is_not_answered(net, other):
    net.start(B, **other)
    net.posts[A].send(B, op(1))
    net.settle()
    assert net.got[B] == []
    assert set(net.posts[B].refused) == {"mac"}
    assert net.posts[B].datagrams_out == 0


def test_another_secret_is_named_by_who_refuses_its_datagrams(net, monkeypatch):
    net.start(B, secret=b"t" * 32)
    with capture_logs() as logged:
        monkeypatch.setattr(forgeries, "log", structlog.get_logger())
        for _ in range(20):
            net.posts[A].send(B, op(1))
            net.settle()
            net.now += 1
    assert [line["event"] for line in logged] == ["rooms.secret"]
    assert "datagrams from 10.0.0.1:7404 fail their MAC" in logged[0]["reason"]


def test_a_stranger_that_is_forged_or_said_by_another_changes_nothing(net):
    proven(net)
    ticket = int.from_bytes(net.overheard[-1][2][10:18], "big")
    for key, who in [(SECRET, C), (b"t" * 32, B)]:
        forged = Seal(datagram_key(key, "chappe"), *who).write(Kind.STRANGER, 1, ticket, 1)
        net.carry([(B, A, forged)])
    assert net.posts[A].refused == {"mac": 2}
    net.posts[A].send(B, op(2))
    assert kinds(net.flush(A)) == [Kind.PARCEL]


def test_what_was_meant_for_another_is_not_taken(net):
    proven(net)
    net.posts[A].send(B, op(2))
    for source, _, data in net.flush(A):
        assert net.posts[C].take(data, source, net.now) == []
    assert net.posts[C].refused == {"mac": 1}
    assert net.flush(C) == []


def sealed(net: Net, kind: int, body: bytes, *, ticket: int | None = None, life: int = 7) -> bytes:
    """A datagram to B of somebody who has the secret, and may be mistaken in all else."""
    seal = Seal(datagram_key(SECRET, "chappe"), *B)
    given_ticket = net.posts[B]._senders.admit(life, Source(A, "a"))
    return seal.write(kind, life, given_ticket if ticket is None else ticket, 1, body)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        (Kind.PARCEL, b"", "garbage"),
        (Kind.PARCEL, b"\x91\x91\x63", "garbage"),
        (Kind.PIECE, b"\x00" * 7, "garbage"),
        (Kind.PIECE, b"\x00" * 6 + b"\xff\xff" + b"x" * 300, "oversize"),
        (Kind.HELLO, b"", "length"),
        (Kind.HELLO, b"\x00" * 272, "garbage"),
        (0, b"", "kind"),
        (6, b"", "kind"),
    ],
)
def test_nonsense_with_a_right_seal_is_refused(net, kind, body, why):
    assert net.posts[B].take(sealed(net, kind, body), A, net.now) == []
    assert net.posts[B].refused == {why: 1}
    assert net.flush(B) == []


def test_a_wrong_ticket_is_refused(net):
    assert net.posts[B].take(sealed(net, Kind.PARCEL, b"\x90", ticket=0), A, net.now) == []
    assert net.posts[B].refused == {"ticket": 1}


def test_senders_are_bounded_and_who_was_silent_longest_is_forgotten():
    net = Net(peers_max=3)
    net.start(B)
    others = [(f"10.0.1.{n}", 7404) for n in range(4)]
    for other in others:
        net.start(other)
    for number, other in enumerate(others[:3]):
        net.posts[other].send(B, op(number))
        net.settle()
    net.posts[others[0]].send(B, op(5))
    net.settle()
    net.posts[others[3]].send(B, op(6))
    net.settle()
    for number, other in enumerate(others):
        net.posts[other].send(B, op(10 + number))
        net.carry(net.flush(other))
    assert net.numbers(B)[-3:] == [10, 12, 13]
    assert net.posts[B].refused == {"ticket": 1}


def test_addressees_are_bounded_and_those_in_use_stay():
    net = Net(peers_max=2)
    net.start(A)
    to = [(f"10.0.1.{n}", 7404) for n in range(5)]
    net.posts[A].send_all(to, op(1))
    assert [one for one, _ in net.posts[A].flush(net.now)] == to[:2]
    assert net.posts[A].dropped["peers_full"] == 3
    net.posts[A].send_all(to[2:], op(1))
    assert [one for one, _ in net.posts[A].flush(net.now)] == to[2:4]
    assert net.posts[A].peers == (2, 0)


def test_the_addressee_that_was_sent_nothing_for_longest_is_forgotten_first():
    net = Net(peers_max=2)
    for me in (A, B, C):
        net.start(me)
    for to in (B, C, B):
        net.posts[A].send(to, op(1))
        net.settle()
    net.posts[A].send(("10.0.0.9", 1), op(1))
    net.flush(A)
    net.posts[A].send(B, op(2))
    assert kinds(net.flush(A)) == [Kind.PARCEL]


def test_who_is_sent_nothing_is_forgotten_and_taken_up_again(net):
    proven(net)
    for number in range(2, 50):
        net.posts[A].send(B, op(number))
        net.settle()
    net.now += addressee.IDLE_S - 1
    net.flush(A)
    assert net.posts[A].peers == (1, 0)
    net.now += 1
    net.flush(A)
    assert net.posts[A].peers == (0, 0)
    # B remembers A, and all that it counted.
    net.posts[A].send(B, op(50))
    net.settle()
    assert net.numbers(B)[-1] == 50
    assert net.posts[B].refused == {}


def test_pieces_are_given_up_in_time(net):
    proven(net)
    net.posts[A].send(B, op(2, 5000))
    sent = net.flush(A)
    assert kinds(sent) == [Kind.PIECE] * len(sent)
    net.carry(sent[:-1])
    assert net.posts[B].due == net.now + net.options.pieces_s
    net.now = net.posts[B].due
    net.flush(B)
    assert net.posts[B].due == math.inf
    assert net.posts[B].pieces_given_up == 1
    net.carry(sent[-1:])
    assert net.got[B] == []


def test_pieces_are_given_up_with_their_sender():
    net = Net(peers_max=1)
    for me in (A, B, C):
        net.start(me)
    proven(net)
    net.posts[A].send(B, op(2, 5000))
    net.carry(net.flush(A)[:-1])
    assert net.posts[B].pieces_given_up == 0
    net.posts[C].send(B, op(3))
    net.settle()
    assert net.posts[B].pieces_given_up == 1


def test_everything_is_counted(net):
    proven(net)
    sent = sum(len(data) for source, _, data in net.overheard if source == A)
    answered = sum(len(data) for source, _, data in net.overheard if source == B)
    a, b = net.posts[A], net.posts[B]
    assert (a.datagrams_out, a.bytes_out) == (b.datagrams_in, b.bytes_in) == (2, sent)
    assert (b.datagrams_out, b.bytes_out) == (a.datagrams_in, a.bytes_in) == (1, answered)
    assert not a.refused
    assert not b.refused
