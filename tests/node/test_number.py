"""A node's number: no two nodes have the same at one time, whatever becomes of the registry."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from chappe.errors import ClusterError, ConfigError
from chappe.ids import NODE_MAX, SEQUENCE_BITS, Snowflake
from chappe.node.number import NodeNumber
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.registry.registry import Registry
from tests.loop import on_loop

QUICK = RegistryOptions(lease_s=0.3, poll_s=0.1, timeout_s=0.1)
PATIENCE_S = 10.0


class Holder:
    """A node that has a number."""

    def __init__(self, registry: Registry, name: str, given: int | None = None) -> None:
        self.registry = registry
        self.ids = Snowflake(0, lambda: 1_800_000_000_000)
        self.number = NodeNumber(registry, name, given, self.ids)

    @property
    def value(self) -> int:
        """The number, as it stands in every id."""
        return (self.ids.next() >> SEQUENCE_BITS) & NODE_MAX


@asynccontextmanager
async def holders(registry: MemoryRegistry, *names: str) -> AsyncIterator[list[Holder]]:
    """Nodes that have claimed numbers; all are given back at the end."""
    found = [Holder(registry.open(name), name) for name in names]
    try:
        for holder in found:
            await holder.number.claim()
        yield found
    finally:
        for holder in found:
            await holder.number.release()
            await holder.registry.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


@on_loop
async def test_each_node_has_a_number_of_its_own_and_ids_only_grow():
    registry = MemoryRegistry(QUICK)
    async with holders(registry, "a", "b", "c") as found:
        assert len({holder.value for holder in found}) == 3
        last = found[0].ids.last
        found[0].ids.renumber(0)
        assert found[0].ids.next() > last


@on_loop
async def test_a_number_that_was_given_back_is_not_given_again_soon():
    registry = MemoryRegistry(QUICK)
    async with holders(registry, "a") as (first,):
        number = first.value
    async with holders(registry, "b") as (second,):
        assert second.value != number


@on_loop
async def test_numbers_go_round_and_skip_those_that_are_held():
    registry = MemoryRegistry(QUICK)
    async with holders(registry, "a", "b") as (first, second):
        coordination = second.registry.coordination
        assert coordination is not None
        while await coordination.next_id("/numbers") % (NODE_MAX + 1) != NODE_MAX:
            pass
        seen = {first.value, second.value}
        async with holders(registry, "c", "d") as others:
            assert not seen & {holder.value for holder in others}
            assert {holder.value for holder in others} == {0, 3}


@on_loop
async def test_when_all_are_taken_that_is_said():
    registry = MemoryRegistry(RegistryOptions())
    taken = registry.open("greedy")
    assert taken.coordination is not None
    for number in range(NODE_MAX + 1):
        await taken.coordination.acquire(f"/numbers/{number}", b"greedy")
    late = Holder(registry.open("late"), "late")
    with pytest.raises(ClusterError, match="1024 numbers"):
        await late.number.claim()
    await late.registry.close()
    await taken.close()


@on_loop
async def test_a_registry_that_forgot_everything_gives_nobody_a_number_that_another_uses():
    registry = MemoryRegistry(QUICK)
    async with holders(registry, "a", "b", "c") as found:
        before = [holder.value for holder in found]
        for name in ("a", "b"):
            registry.cut(name)
        registry.forget()
        # The one that finds out first must not take what the others still use.
        await asyncio.sleep(QUICK.lease_s)
        assert [holder.value for holder in found] == before
        for name in ("a", "b"):
            registry.heal(name)
        await asyncio.sleep(QUICK.lease_s)
        assert [holder.value for holder in found] == before
        probe = registry.open("probe")
        assert probe.coordination is not None
        for number in before:
            with pytest.raises(ClusterError):  # Held, by whoever uses it
                await probe.coordination.acquire(f"/numbers/{number}", b"probe")
        await probe.close()


@on_loop
async def test_a_node_whose_number_went_to_another_takes_a_new_one():
    registry = MemoryRegistry(QUICK)
    async with holders(registry, "a", "b") as (slept, other):
        number = slept.value
        registry.cut("a")
        other_coordination = other.registry.coordination
        assert other_coordination is not None

        async def taken() -> bool:
            try:
                await other_coordination.acquire(f"/numbers/{number}", b"b")
            except ClusterError:
                return False
            return True

        async with asyncio.timeout(PATIENCE_S):
            while not await taken():
                await asyncio.sleep(0.02)
        last = slept.ids.last
        registry.heal("a")
        await until(lambda: slept.value != number)
        assert slept.value != other.value
        assert slept.ids.next() > last


@on_loop
async def test_a_number_that_was_given_is_kept_and_another_nodes_is_refused():
    registry = MemoryRegistry(QUICK)
    one = Holder(registry.open("one"), "one", 7)
    await one.number.claim()
    assert one.value == 7
    two = Holder(registry.open("two"), "two", 7)
    with pytest.raises(ConfigError, match="number: 7 is the number of one"):
        await two.number.claim()
    # Its own, from before a crash, is not another's.
    again = Holder(registry.open("again"), "one", 7)
    await again.number.claim()
    assert again.value == 7
    for holder in (one, two, again):
        await holder.number.release()
        await holder.registry.close()


@pytest.mark.parametrize(
    ("host", "number"), [("chappe-0", 0), ("chappe-17", 17), ("web-1023", 1023)]
)
def test_without_coordination_the_end_of_the_host_name_is_the_number(
    monkeypatch: pytest.MonkeyPatch, host: str, number: int
):  # H7
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    @on_loop
    async def claim() -> None:
        membership = MemoryRegistry().open("x").membership
        holder = Holder(Registry("kubernetes", membership, None), "x")
        await holder.number.claim()
        assert holder.value == number
        given = Holder(Registry("kubernetes", membership, None), "x", 9)
        await given.number.claim()
        assert given.value == 9
        await given.number.release()

    claim()


@pytest.mark.parametrize("host", ["chappe", "chappe-", "chappe-1024", "chappe-x", "12"])
def test_a_host_name_without_a_number_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, host: str
):  # H7
    monkeypatch.setattr(socket, "gethostname", lambda: host)

    @on_loop
    async def claim() -> None:
        holder = Holder(Registry("kubernetes", MemoryRegistry().open("x").membership, None), "x")
        with pytest.raises(ConfigError, match="number: kubernetes:// cannot give"):
            await holder.number.claim()

    claim()
