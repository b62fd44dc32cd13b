"""What the hub tells its recorder: each kind of event, once per batch, with the right counts."""

from __future__ import annotations

from collections.abc import Sequence

from chappe.events.counting import CountingRecorder
from chappe.events.recorder import Queued
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire.ops import Malformed, Subscribe
from tests.hub.rig import Rig, publish, send
from tests.loop import on_loop


class KeptRecorder(CountingRecorder):
    """Keeps every call that matters here."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[object, ...]] = []

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        self.calls.append(("opened", app, address, session, edge))

    def session_closed(
        self, app: str, address: str, session: str, edge: str, code: int, opened: int
    ) -> None:
        self.calls.append(("closed", app, address, session, edge, code))

    def sent(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        self.calls.append(("sent", app, [m.payload for m in messages]))

    def queued(self, app: str, queue: str, messages: Sequence[Queued]) -> None:
        self.calls.append(("queued", app, queue, [m.payload for m in messages]))

    def published(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        self.calls.append(("published", app, [m.payload for m in messages], receivers))

    def refused(self, app: str, error: str) -> None:
        self.calls.append(("refused", app, str(error)))

    def dropped(
        self, app: str, reason: str, messages: int, target: str = "", ids: Sequence[int] = ()
    ) -> None:
        self.calls.append(("dropped", app, reason, messages))

    def taken(self) -> list[tuple[object, ...]]:
        calls, self.calls = self.calls, []
        return calls


def rig_of(options: HubOptions | None = None) -> tuple[Rig, KeptRecorder]:
    recorder = KeptRecorder()
    return Rig(recorder=recorder, options=options), recorder


@on_loop
async def test_a_session_is_told_when_it_is_admitted_and_when_it_ends() -> None:
    rig, recorder = rig_of()
    stranger = rig.stranger()
    assert recorder.taken() == []
    rig.hub.lost(stranger.session)
    assert recorder.taken() == [], "nobody has come, nobody leaves"
    alice = rig.endpoint("alice", app="shop")
    session = alice.session.id
    assert recorder.taken() == [("opened", "shop", "user:alice", session, "rig")]
    rig.hub.lost(alice.session, 1006)
    rig.hub.lost(alice.session, 1006)
    assert recorder.taken() == [("closed", "shop", "user:alice", session, "rig", 1006)]


@on_loop
async def test_a_run_of_messages_is_one_event_with_its_counts() -> None:
    rig, recorder = rig_of()
    alice, bob, carol = (rig.endpoint(name) for name in ("alice", "bob", "carol"))
    for reader in (bob, carol):
        reader.say(Subscribe(to="topic:t"))
    await rig.tick()
    recorder.taken()
    alice.say(*(publish("topic:t", n) for n in range(3)), *(send("user:bob", n) for n in (7, 8)))
    await rig.tick()
    assert recorder.taken() == [
        ("published", "default", [b"0", b"1", b"2"], 2),
        ("sent", "default", [b"7", b"8"]),
    ]


@on_loop
async def test_a_send_to_several_devices_is_one_message() -> None:
    rig, recorder = rig_of()
    alice = rig.endpoint("alice")
    devices = [rig.endpoint("bob") for _ in range(3)]
    recorder.taken()
    alice.say(send("user:bob", 1))
    await rig.tick()
    rig.hub.pause(devices[0].session)
    alice.say(send("user:bob", 2))
    await rig.tick()
    for device in devices:
        rig.hub.pause(device.session)
    alice.say(send("user:bob", 3))
    await rig.tick()
    assert recorder.taken() == [("sent", "default", [b"%d" % n]) for n in (1, 2, 3)]


@on_loop
async def test_a_publish_that_nobody_hears_is_told_with_no_receiver() -> None:
    rig, recorder = rig_of()
    alice = rig.endpoint("alice")
    recorder.taken()
    alice.say(publish("topic:t", 1))
    await rig.tick()
    assert recorder.taken() == [("published", "default", [b"1"], 0)]


@on_loop
async def test_a_refusal_is_told_once_with_its_app_and_error() -> None:
    rig, recorder = rig_of()
    alice, stranger = rig.endpoint("alice", app="shop"), rig.stranger()
    recorder.taken()
    alice.say(send("user:nobody", 1, id=1), send("nonsense", 1), Malformed("bad"))
    stranger.say(send("user:alice", 1, id=1))
    await rig.tick()
    assert recorder.taken() == [
        ("refused", "shop", "unreachable"),
        ("refused", "shop", "protocol"),
        ("refused", "", "protocol"),
        ("refused", "", "protocol"),
    ]


@on_loop
async def test_what_is_dropped_is_told_with_its_reason_and_number() -> None:
    rig, recorder = rig_of(HubOptions(outbox_bytes_max=10_000))
    alice, slow = rig.endpoint("alice"), rig.endpoint("slow")
    slow.say(Subscribe(to="topic:t"))
    await rig.tick()
    rig.hub.pause(slow.session)
    recorder.taken()
    alice.say(*(publish("topic:t", "x" * 1000) for _ in range(20)))
    await rig.tick()
    (_, *_, receivers), (kind, app, reason, count) = recorder.taken()
    assert receivers == 1
    assert (kind, app, reason) == ("dropped", "default", "slow_consumer")
    assert count == 20 - len(slow.session.backlog or ())


@on_loop
async def test_the_default_recorder_counts_messages_and_deliveries() -> None:
    recorder = CountingRecorder()
    rig = Rig(recorder=recorder)
    alice, bob = rig.endpoint("alice"), rig.endpoint("bob")
    for reader in (alice, bob):
        reader.say(Subscribe(to="topic:t"))
    alice.say(publish("topic:t", 1), publish("topic:t", 2), send("user:bob", 3))
    alice.say(send("user:nobody", 1))
    await rig.tick()
    rig.hub.lost(bob.session, 1001)
    assert recorder.messages == {"send": 1, "publish": 2}
    assert recorder.deliveries == {"send": 1, "publish": 4}
    assert recorder.refusals == {"unreachable": 1}
    assert recorder.opened == {"rig": 2}
    assert recorder.closed == {1001: 1}
