"""The gateway hands members each message once, in order, and says which rooms it has (R11, R14)."""

from __future__ import annotations

from collections import Counter

from chappe.events.counting import CountingRecorder
from chappe.message import Message
from chappe.rooms.gateway import Gateway
from chappe.rooms.options import RoomsOptions
from chappe.rooms.roll import Roll
from chappe.wire.rooms import (
    Announce,
    Confirmed,
    Count,
    Counted,
    Deliver,
    Entry,
    Goodbye,
    Here,
    Pulse,
    Pulsed,
    RoleKind,
    State,
    Who,
)
from tests.rooms.rig import APP, Bench, card, endpoint, message, seat, seats, source

OPTIONS = RoomsOptions()
GATEWAY = card(90, epoch=4)


class Hall:
    """An audience that is counted."""

    def __init__(self) -> None:
        self.members: Counter[tuple[str, str]] = Counter()
        self.got: list[tuple[str, int, str]] = []

    def count(self, app: str, room: str) -> int:
        return self.members[app, room]

    def who(self, app: str, room: str, limit: int) -> list[str]:
        return [f"user:{at}" for at in range(self.members[app, room])][:limit]

    def deliver(self, app: str, message: Message, came_from: str) -> None:
        self.got.append((app, message.id, came_from))


class Rig(Bench):
    """A gateway with routers that answer."""

    def __init__(self, roll: Roll | None = None, *, options: RoomsOptions = OPTIONS) -> None:
        super().__init__()
        self.hall = Hall()
        self.recorder = CountingRecorder()
        self.gateway = Gateway(
            options=options,
            post=self.post,
            clock=self.clock,
            name="n90",
            card=GATEWAY,
            audience=self.hall,
            recorder=self.recorder,
        )
        self.said: list[tuple[str, str]] = []
        self.gateway.on_confirmed = lambda app, room: self.said.append((app, room))
        self.look(roll or Roll(routers=seats(70), proxies=seats(60)))
        self.post.said.clear()

    def look(self, roll: Roll) -> None:
        self.gateway.see(roll, self.now)
        self.run(0.1)

    def run(self, seconds: float) -> None:
        self.pass_time(self.gateway, seconds)

    def join(self, *rooms: str) -> None:
        for room in rooms:
            self.hall.members[APP, room] += 1
            self.gateway.joined(APP, room, self.now)

    def leave(self, room: str) -> None:
        self.hall.members[APP, room] -= 1
        self.gateway.left(APP, room, self.now)

    def deliver(
        self,
        id: int,
        room: str = "7",
        *,
        reliable: bool = False,
        proxy: int = 1,
        broker: int = 1,
        giver: str | None = None,
    ) -> None:
        op = Deliver(APP, message(id, room), reliable, proxy, broker, giver)
        self.gateway.receive(op, source(broker), self.now)

    def got(self) -> list[int]:
        return [each for _, each, _ in self.hall.got]

    def entries(self) -> list[tuple[int, Entry]]:
        """What was told, and which router; forgotten with that."""
        told = self.post.take(Announce)
        return [(to[1] - 10_000, entry) for to, op in told for entry in op.entries]


def joined(*rooms: str, options: RoomsOptions = OPTIONS) -> Rig:
    rig = Rig(options=options)
    rig.join(*rooms)
    rig.run(0)
    return rig


def test_members_get_each_message_once_and_are_told_whence_it_came() -> None:
    rig = joined("7")
    rig.deliver(1)
    rig.deliver(1)
    rig.deliver(1, broker=2)
    assert rig.hall.got == [(APP, 1, "n1")]
    assert rig.gateway.drops == {"duplicate": 2}


def test_of_the_copies_of_a_reliable_message_the_first_counts() -> None:  # R13
    rig = joined("7")
    for proxy, broker in ((1, 2), (2, 1), (3, 1)):
        rig.deliver(1, reliable=True, proxy=proxy, broker=broker)
    assert rig.got() == [1]


def test_a_reliable_message_is_delivered_though_it_was_overtaken() -> None:  # R13
    rig = joined("7")
    rig.deliver(5)
    rig.deliver(3, reliable=True)
    rig.deliver(6)
    assert rig.got() == [5, 3, 6]


def test_a_reliable_message_overtakes_nothing() -> None:
    rig = joined("7")
    rig.deliver(5, reliable=True)
    rig.deliver(3)
    assert rig.got() == [5, 3]


def test_on_one_way_messages_are_delivered_in_order() -> None:  # R14
    rig = joined("7")
    for each in (1, 3, 2, 4):
        rig.deliver(each)
    assert rig.got() == [1, 3, 4]
    assert rig.gateway.drops == {"overtaken": 1}
    assert rig.recorder.drops == {"overtaken": 1}


def test_by_another_way_nothing_is_lost() -> None:  # R14
    rig = joined("7")
    rig.deliver(3, broker=1)
    rig.deliver(2, broker=2)
    rig.deliver(1, proxy=2)
    assert rig.got() == [3, 2, 1]
    # Several brokers of one node are several ways.
    for each, broker in ((9, 4), (8, 5)):
        op = Deliver(APP, message(each), False, 1, broker)
        rig.gateway.receive(op, source(4), rig.now)
    assert rig.got() == [3, 2, 1, 9, 8]


def test_a_message_for_a_room_without_members_here_is_dropped_and_the_room_denied() -> None:  # R11
    rig = joined("7")
    rig.post.said.clear()
    rig.deliver(1, room="8")
    rig.run(0)
    assert rig.got() == []
    assert rig.gateway.drops == {"no_member": 1}
    assert [(entry.room, entry.members) for _, entry in rig.entries()] == [("8", 0)]


def test_a_room_is_not_denied_for_every_message() -> None:
    rig = joined("7")
    told = 0
    for each in range(100):
        rig.deliver(each, room="8")
        rig.run(0.01)
        entries = [entry for _, entry in rig.entries() if entry.room == "8"]
        told += len({entry.seq for entry in entries})
        confirm(rig, *(entry.seq for entry in entries))
    assert 1 <= told <= 5
    assert rig.gateway.drops["no_member"] == 100


def test_what_nobody_was_here_for_is_delivered_if_a_copy_comes_after_a_join() -> None:
    rig = Rig()
    rig.deliver(1, reliable=True)
    rig.join("7")
    rig.deliver(1, reliable=True)
    assert rig.got() == [1]


def test_a_copy_is_not_delivered_though_its_id_was_forgotten() -> None:  # R2, R11
    rig = joined("7", options=RoomsOptions(dedup_max=2, flows_max=1))
    for each in (1, 2, 3):
        rig.deliver(each, reliable=True)
    rig.deliver(1, reliable=True)
    rig.deliver(3, reliable=True)
    assert rig.got() == [1, 2, 3]
    assert rig.gateway.drops == {"too_old": 1, "duplicate": 1}
    assert rig.recorder.drops == {"too_old": 1}


def test_nor_is_a_normal_message_whose_publisher_was_forgotten_as_well() -> None:  # R2, R14
    rig = joined("7", "8", options=RoomsOptions(dedup_max=2, flows_max=1))
    rig.deliver(1)
    for each in (2, 3, 4):
        rig.deliver(each, "8")
    rig.deliver(1)
    assert rig.got() == [1, 2, 3, 4]
    assert rig.gateway.drops == {"too_old": 1}


def confirm(rig: Rig, *seqs: int, name: str = "g90", epoch: int = 4, router: int = 0) -> None:
    op = Confirmed(name, epoch, list(seqs), 1, router)
    rig.gateway.receive(op, source(70), rig.now)


def test_a_join_is_told_of_and_confirmed() -> None:
    rig = Rig()
    rig.hall.members[APP, "7"] = 1
    assert rig.gateway.joined(APP, "7", rig.now) is False
    rig.run(0)
    assert rig.post.of(Announce) == [(endpoint(70), Announce(GATEWAY, [Entry(APP, "7", 7, 1, 1)]))]
    confirm(rig, 1)
    assert rig.said == [(APP, "7")]
    assert rig.gateway.confirmed(APP, "7")
    assert rig.gateway.joined(APP, "7", rig.now) is True


def test_confirmations_of_others_are_not_its_own() -> None:
    rig = joined("7")
    confirm(rig, 1, name="g91")
    confirm(rig, 1, epoch=3)
    confirm(rig, 1, router=71)
    assert rig.said == []


def test_it_asks_for_a_tick_when_something_is_to_be_told() -> None:
    rig = joined("7")
    asked: list[float] = []
    rig.gateway.on_due = lambda: asked.append(rig.gateway.due)
    rig.join("8")
    rig.leave("7")
    assert asked == [rig.now, rig.now]


def test_pseudo_rooms_are_announced_and_left() -> None:  # R15
    rig = Rig()
    rig.gateway.pseudo([0, 1])
    rig.run(0)
    assert [entry for _, entry in rig.entries()] == [
        Entry("~", "0", 0, 1, 1),
        Entry("~", "1", 1, 2, 1),
    ]
    confirm(rig, 1, 2)
    assert rig.gateway.confirmed("~", "1")
    rig.gateway.pseudo([0])
    rig.run(0)
    assert [entry for _, entry in rig.entries()] == [Entry("~", "1", 1, 3, 0)]


def test_it_answers_brokers_and_says_how_much_it_took_of_each() -> None:  # R5
    rig = joined("7")
    rig.deliver(1, broker=1)
    rig.deliver(2, broker=1)
    rig.deliver(3, broker=2)
    rig.post.said.clear()
    for broker in (1, 2, 3):
        pulse = Pulse(RoleKind.BROKER, broker, RoleKind.GATEWAY, 4, 1, 0.0)
        rig.gateway.receive(pulse, source(broker), rig.now)
    answers = [op for _, op in rig.post.of(Pulsed)]
    assert [op.taken for op in answers] == [2, 1, 0]
    assert all(op.state is State.RUNNING and op.id == 4 for op in answers)


def test_it_says_who_is_here_to_the_one_that_asks() -> None:
    rig = joined("7", "7", "7")
    rig.post.said.clear()
    rig.gateway.receive(Who(APP, "7", 5, 2, card(91)), source(1), rig.now)
    assert rig.post.said == [(endpoint(91), Here(5, "g90", ["user:0", "user:1"]))]


def test_how_many_are_in_a_room_is_asked_by_a_proxy() -> None:
    rig = Rig()
    told: list[tuple[int, list[str] | None]] = []
    rig.gateway.ask(APP, "7", 5, rig.now, lambda *answer: told.append(answer))
    ((to, op),) = rig.post.of(Count)
    assert (to, op.partition, op.card) == (endpoint(60), -1, GATEWAY)
    rig.gateway.receive(Counted(op.ask, 1, 1, 1), source(1), rig.now)
    rig.gateway.receive(Here(op.ask, "g1", ["user:ann"]), source(91), rig.now)
    assert told == [(1, ["user:ann"])]


def test_a_question_without_an_answer_ends() -> None:
    rig = Rig()
    told: list[int] = []
    rig.gateway.ask(APP, "7", 5, rig.now, lambda members, _: told.append(members))
    rig.run(1.1)
    assert told == [-1]


def test_a_goodbye_goes_to_all_routers_and_nothing_after_it() -> None:
    rig = Rig(Roll(routers=seats(70, 71)))
    rig.join("7")
    rig.run(1.0)
    rig.post.said.clear()
    rig.gateway.goodbye(rig.now)
    assert sorted(rig.post.of(Goodbye)) == [(endpoint(id_), Goodbye(GATEWAY)) for id_ in (70, 71)]
    rig.leave("7")
    rig.join("8")
    rig.deliver(1, room="9")
    rig.run(30.0)
    assert rig.post.of(Announce) == []
    assert len(rig.post.of(Goodbye)) == 6


def independent(partitions: int, *rows: tuple[int, ...], wanted: int = 0) -> Roll:
    found = {partition: seats(*ids) for partition, ids in enumerate(rows)}
    return Roll(independent=found, router_partitions=partitions, router_wanted=wanted)


def told_by(rig: Rig, *rooms: int) -> dict[int, list[int]]:
    """Which rooms each router is told of that members come to now."""
    rig.post.said.clear()
    rig.join(*map(str, rooms))
    rig.run(0)
    found: dict[int, list[int]] = {}
    for router, entry in rig.entries():
        found.setdefault(router, []).append(entry.number)
    return found


def test_of_independent_routers_the_partition_and_the_replica_are_by_room() -> None:  # R12
    rig = Rig(independent(2, (70, 71), (72, 73, 74)))
    assert told_by(rig, *range(6)) == {70: [0, 2, 4], 73: [1], 72: [3], 74: [5]}


def test_while_routers_double_two_partitions_are_told() -> None:  # R12
    rig = Rig(independent(2, (70,), (71,), (72,), (73,), wanted=4))
    assert told_by(rig, 0, 1, 2, 3) == {70: [0, 2], 71: [1, 3], 72: [0, 2], 73: [1, 3]}
    rig.look(independent(4, (70,), (71,), (72,), (73,)))
    assert told_by(rig, 4, 5, 6, 7) == {70: [4], 71: [5], 72: [6], 73: [7]}


def test_routers_of_one_process_are_told_once() -> None:
    rows = {0: seats(70), 1: (seat(71),)}
    both = {0: rows[0], 1: (type(rows[0][0])(71, rows[0][0].place),)}
    rig = Rig(Roll(independent=both, router_partitions=1, router_wanted=2))
    assert told_by(rig, 4) == {70: [4]}


def test_who_runs_is_told_rather_than_who_makes_ready() -> None:
    rig = Rig()
    rig.says = {70: {"state": State.INIT}, 71: {"state": State.RUNNING}}
    rig.look(Roll(routers=seats(70, 71)))
    rig.run(1.0)
    assert told_by(rig, 0, 1) == {71: [0, 1]}
    rig.says[71] = {"state": State.INIT}
    rig.run(1.0)
    assert told_by(rig, 2, 3) == {70: [2], 71: [3]}


def test_its_signs_of_life_say_how_many_router_partitions_it_goes_by() -> None:  # R12
    rig = Rig(independent(2, (70,), (71,)))
    rig.run(1.0)
    assert {op.number for _, op in rig.post.of(Pulse)} == {2}
    rig.look(independent(4, (70,), (71,)))
    rig.post.said.clear()
    rig.run(1.0)
    pulses = [op for _, op in rig.post.of(Pulse)]
    assert {op.number for op in pulses} == {4}
    assert {(op.sender_id, op.card) for op in pulses} == {(4, GATEWAY)}


def test_without_a_recorder_it_delivers_all_the_same() -> None:
    rig = joined("7")
    rig.gateway._hops = None
    for each in (3, 3, 2):
        rig.deliver(each)
    rig.deliver(9, room="8")
    assert rig.hall.got == [(APP, 3, "n1")]


def test_what_a_broker_of_this_node_brings_came_from_whom_it_had_it() -> None:
    rig = joined("7")
    op = Deliver(APP, message(1), False, 1, 1, "n5")
    rig.gateway.receive(op, source(1, "n90"), rig.now)
    assert rig.hall.got == [(APP, 1, "n5")]


def test_it_tells_what_it_has_and_has_left_out() -> None:
    rig = joined("7")
    rig.deliver(1)
    rig.deliver(1)
    assert rig.gateway.counts == {"rooms": 1, "telling": 1, "delivered": 1, "dropped_duplicate": 1}
