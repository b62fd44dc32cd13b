"""Whatever happens in whatever order within a tick or across ticks: each device gets exactly what
its own app's ops say, in their order, and nothing of another app."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chappe.wire.encoding import JSON_ITEMS, STREAM
from chappe.wire.ops import Delivery, Op, Subscribe, Unsubscribe
from tests.hub.rig import Endpoint, Rig, payload_of, publish, send
from tests.loop import on_loop

APPS = ("red", "blue")
USERS = ("a", "b")
TOPICS = ("topic:t", "topic:u")


class Device:
    """One session, and what it must have got in the end."""

    def __init__(self, app: str, user: str, endpoint: Endpoint) -> None:
        self.app = app
        self.user = user
        self.endpoint = endpoint
        self.topics: set[str] = set()
        self.expected: list[Any] = []


class World:
    """A hub with two apps whose users and topics have the same names, and a model beside it."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.devices: list[Device] = []
        self.gone: list[Device] = []
        self._serial = 0
        for app in APPS:
            for user in USERS:
                self.connect(app, user)

    def connect(self, app: str, user: str) -> None:
        encoding = (STREAM, JSON_ITEMS)[len(self.devices) % 2]
        endpoint = self.rig.endpoint(user, encoding, app=app)
        self.devices.append(Device(app, user, endpoint))

    def step(self, action: str, who: int, times: int) -> None:
        device = self.devices[who % len(self.devices)]
        user, topic = USERS[times % 2], TOPICS[times // 2 % 2]
        getattr(self, action)(device, user, topic, times)

    def join(self, device: Device, user: str, topic: str, times: int) -> None:
        device.endpoint.say(Subscribe(to=topic))
        device.topics.add(topic)

    def leave(self, device: Device, user: str, topic: str, times: int) -> None:
        device.endpoint.say(Unsubscribe(to=topic))
        device.topics.discard(topic)

    def send(self, device: Device, user: str, topic: str, times: int) -> None:
        ops: list[Op] = [send(f"user:{user}", self._next(device)) for _ in range(times)]
        self._expect(device, times, lambda other: other.user == user)
        device.endpoint.say(*ops)

    def send_to_all(self, device: Device, user: str, topic: str, times: int) -> None:
        device.endpoint.say(send([f"user:{user}" for user in USERS], self._next(device)))
        self._expect(device, 1, lambda other: True)

    def publish(self, device: Device, user: str, topic: str, times: int) -> None:
        ops: list[Op] = [publish(topic, self._next(device)) for _ in range(times)]
        self._expect(device, times, lambda other: topic in other.topics)
        device.endpoint.say(*ops)

    def pause(self, device: Device, user: str, topic: str, times: int) -> None:
        session = device.endpoint.session
        (self.rig.hub.resume if session.paused else self.rig.hub.pause)(session)

    def come(self, device: Device, user: str, topic: str, times: int) -> None:
        if len(self.devices) < 8:
            self.connect(device.app, user)

    def go(self, device: Device, user: str, topic: str, times: int) -> None:
        if len(self.devices) > 1:
            self.rig.hub.lost(device.endpoint.session)
            self.devices.remove(device)
            self.gone.append(device)

    def _next(self, device: Device) -> list[Any]:
        self._serial += 1
        return [device.app, self._serial]

    def _expect(self, sender: Device, times: int, reached: Any) -> None:
        values = [[sender.app, self._serial - back] for back in reversed(range(times))]
        for other in self.devices:
            if other.app == sender.app and reached(other):
                other.expected += values

    async def check(self) -> None:
        for device in self.devices:
            self.rig.hub.resume(device.endpoint.session)
        await self.rig.tick()
        for device in self.devices:
            assert _got(device) == device.expected
        for device in self.gone:
            got = _got(device)
            assert got == device.expected[: len(got)]
        for app in APPS:
            self._check_tables(app)

    def _check_tables(self, app: str) -> None:
        there = [device for device in self.devices if device.app == app]
        if not there:
            assert app not in self.rig.hub.apps, "the last to leave reclaims it"
            return
        tables = self.rig.hub.apps[app]
        assert tables.sessions == len(there)
        assert set(tables.endpoints) == {f"user:{device.user}" for device in there}
        subscribers: dict[str, set[str]] = defaultdict(set)
        for device in there:
            for topic in device.topics:
                subscribers[topic].add(device.endpoint.session.id)
        found = {topic: {s.id for s in tables.topics.get(topic) or ()} for topic in tables.topics}
        assert found == subscribers


def _got(device: Device) -> list[Any]:
    return [payload_of(op) for op in device.endpoint.heard() if isinstance(op, Delivery)]


ACTIONS = ("join", "leave", "send", "send_to_all", "publish", "pause", "come", "go", "tick")


@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7), st.integers(1, 4)), max_size=60)
)
def test_each_device_gets_exactly_what_its_app_says_and_two_apps_never_meet(
    steps: list[tuple[str, int, int]],
) -> None:
    @on_loop
    async def live() -> None:
        world = World()
        for action, who, times in steps:
            if action == "tick":
                await world.rig.tick()
            else:
                world.step(action, who, times)
        await world.check()

    live()
