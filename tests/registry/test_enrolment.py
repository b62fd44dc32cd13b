from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from chappe.registry.coordination import Coordination
from chappe.registry.enrolment import Enrolment
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.rooms.roll import Place
from chappe.simulation import Simulation
from chappe.wire.rooms import State

PATH = "/pubsub/proxy"
PLACE = Place(name="n1", host="10.0.0.1", port=7404, state=State.INIT)
LEASE_S = 15.0


def told(row: dict[int, bytes]) -> dict[int, Place]:
    return {number: msgspec.json.decode(value, type=Place) for number, value in row.items()}


class Rig:
    def __init__(self) -> None:
        self.registry = MemoryRegistry(RegistryOptions(lease_s=LEASE_S))
        self.ids: list[int] = []
        self.enrolment = Enrolment(
            self.open("n1"), PATH, PLACE, lease_s=LEASE_S, seated=self.ids.append
        )

    def open(self, name: str) -> Coordination:
        coordination = self.registry.open(name).coordination
        assert coordination is not None
        return coordination

    async def seen(self, wanted: Callable[[dict[int, Place]], bool]) -> dict[int, Place]:
        views = self.open("watcher").watch_seats(PATH)
        async with asyncio.timeout(60):
            async for row in views:
                if wanted(told(dict(row))):
                    return told(dict(row))
        raise AssertionError


def play(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def whole() -> None:
        rig = Rig()
        rig.enrolment.start()
        await story(rig)
        await rig.enrolment.stop()
        await rig.seen(lambda row: not row)

    Simulation(1).run(whole())


def test_a_role_sits_and_its_state_is_told():
    async def story(rig: Rig) -> None:
        row = await rig.seen(lambda row: len(row) == 1)
        assert row == {rig.ids[0]: PLACE}
        running = msgspec.structs.replace(PLACE, state=State.RUNNING)
        rig.enrolment.tell(running)
        assert await rig.seen(lambda row: running in row.values()) == {rig.ids[0]: running}

    play(story)


# R4: a role that lost its registry session registers again.
def test_a_role_whose_seat_was_forgotten_sits_again_under_a_new_id():
    async def story(rig: Rig) -> None:
        await rig.seen(lambda row: len(row) == 1)
        running = msgspec.structs.replace(PLACE, state=State.RUNNING)
        rig.enrolment.tell(running)
        await rig.seen(lambda row: running in row.values())
        rig.registry.forget()
        row = await rig.seen(bool)
        assert len(rig.ids) == 2
        assert rig.ids[1] > rig.ids[0]
        # As what it is by now, not as what it was when it sat down first.
        assert row == {rig.ids[1]: running}

    play(story)


def test_a_role_keeps_trying_while_the_registry_is_away():
    async def story(rig: Rig) -> None:
        await rig.seen(lambda row: len(row) == 1)
        rig.registry.cut("n1")
        running = msgspec.structs.replace(PLACE, state=State.RUNNING)
        rig.enrolment.tell(running)
        await rig.seen(lambda row: not row)
        await asyncio.sleep(60)
        rig.registry.heal("n1")
        began = asyncio.get_running_loop().time()
        row = await rig.seen(bool)
        assert asyncio.get_running_loop().time() - began < LEASE_S
        assert row == {rig.ids[-1]: running}

    play(story)


def test_a_registry_that_is_away_at_first_is_waited_for():
    async def story() -> None:
        rig = Rig()
        rig.registry.cut("n1")
        rig.enrolment.start()
        await asyncio.sleep(60)
        assert rig.ids == []
        rig.registry.heal("n1")
        assert await rig.seen(bool) == {rig.ids[0]: PLACE}
        await rig.enrolment.stop()

    Simulation(1).run(story())


def test_a_role_that_has_risen_does_not_sit_again_though_it_is_asked_to():
    async def story(rig: Rig) -> None:
        await rig.seen(lambda row: len(row) == 1)
        ending = asyncio.create_task(rig.enrolment.stop())
        for _ in range(20):
            # What changes meanwhile is told, as ever.
            rig.enrolment.start()
            await asyncio.sleep(0)
        await ending
        rig.enrolment.start()
        await asyncio.sleep(1)
        assert len(rig.ids) == 1

    play(story)
