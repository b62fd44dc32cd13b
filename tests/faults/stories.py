"""What happens to a cluster of three real nodes, whichever registry they know each other by."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from chappe.client import Client
from chappe.errors import Overload, RequestError, Unreachable

from .appserver import AppServer
from .load import Load
from .trio import (
    ANSWER_S,
    GRACE_S,
    HEARTBEAT_S,
    LEASE_S,
    SILENCE_S,
    WRITTEN_S,
    Trio,
    until,
)


async def knows(clients: list[Client], address: str, *, online: bool) -> bool:
    """Whether each of the clients is told that."""
    return [await client.presence(address) for client in clients] == [online] * len(clients)


async def queue_known(queue: str, *clients: Client) -> bool:
    """Whether the node of each client knows the queue: others than its own do a moment later."""
    try:
        return all([await client.presence(queue) for client in clients])
    except Overload as error:
        # Two nodes do not agree yet on where it lives.
        if error.outcome_unknown:
            raise
        return False


class Notices:
    """What an app is told of some users; of others it is told as well."""

    def __init__(self, app: AppServer, *names: str) -> None:
        self._app = app
        self._addresses = {f"user:{name}" for name in names}
        self._found: list[tuple[str, str]] = []

    def take(self) -> list[tuple[str, str]]:
        """All that came since the last time, in any order."""
        self._look()
        found, self._found = self._found, []
        return sorted(found)

    async def expect(self, event: str, *names: str) -> None:
        """Wait until the app was told that of each of these, once, and nothing else."""
        wanted = sorted((event, f"user:{name}") for name in names)

        def told() -> bool:
            self._look()
            return len(self._found) >= len(wanted)

        await until(told, f"the app is told {wanted}")
        assert self.take() == wanted

    def _look(self) -> None:
        self._found += [told for told in self._app.told() if told[1] in self._addresses]


async def a_node_is_killed(trio: Trio, app: AppServer) -> None:
    """Its users are offline within three beats, and gone once their time is over."""
    async with AsyncExitStack() as stack:
        # Two who stay, two on the node that dies: one of them comes back, one does not.
        stay = [await trio.client(at, f"stay{at}") for at in (0, 1)]
        wanders = await trio.client(2, "wanders", 0, 1)
        lost = await trio.client(2, "lost")
        two = [await trio.client(2, "two")]
        await until(lambda: knows(stay, "user:two", online=True), "the first device is known")
        two.append(await trio.client(0, "two"))
        # Several, so that each node is to tell of some.
        never = [await trio.client(2, f"never{n}") for n in range(8)]
        for client in (*stay, wanders, lost, *never, *two):
            stack.push_async_callback(client.close)
        nevers = {client.address.removeprefix("user:") for client in never}
        names = {"stay0", "stay1", "wanders", "lost", "two"} | nevers
        notices = Notices(app, *names)
        await notices.expect("came", *names)
        await until(lambda: knows(stay, "user:lost", online=True), "all know who is there")
        topics = [f"topic:{n}" for n in range(12)]
        for topic in topics:
            for client in (*stay, wanders):
                await client.subscribe(topic)
        await lost.create("queue:killed", volatile=True)
        await until(lambda: queue_known("queue:killed", *stay), "the queue is known")
        await stay[1].send("queue:killed", "lent")
        (lent,) = await stay[0].fetch("queue:killed", wait_s=5)
        work = await work_in_hand(stay, lost)
        await asyncio.sleep(WRITTEN_S)
        trio.nodes[2].kill()
        killed = time.monotonic()
        await asyncio.gather(*(client.close() for client in never))
        await offline_before(killed + SILENCE_S, stay, "user:lost")
        for client in stay:
            try:
                await client.send("user:lost", 1)
            except Unreachable:
                continue
            raise AssertionError("a message to nobody was taken")
        await work()
        await until(lambda: knows(stay, "user:wanders", online=True), "who wanders is back")
        await until(lambda: wanders.connected, "who wanders has subscribed again")
        assert await knows(stay, "user:two", online=True)
        # Topics, wherever they lived, reach all again; the queue lives on, empty.
        for n, topic in enumerate(topics):
            await stay[n % 2].publish(topic, f"{topic} again")
        for client in (*stay, wanders):
            await hears(client, {f"{topic} again" for topic in topics})
        assert not await lent.ack()
        await stay[1].send("queue:killed", "job")
        (item,) = await stay[0].fetch("queue:killed", wait_s=5)
        assert item.data == "job"
        assert await item.ack()
        # Only who did not come back is gone, and that is told once.
        await notices.expect("gone", "lost", *nevers)
        await asyncio.to_thread(trio.nodes[2].start)
        # It was away longer than the grace time: its user came anew.
        await notices.expect("came", "lost")
        await until(lambda: knows(stay, "user:lost", online=True), "who comes back is known")
        await until(trio_is_whole(stay, lost), "the node is one of them again")
        # Nobody is told again of who was gone already, by the node that they were on.
        await asyncio.sleep(1.5 * GRACE_S)
        assert notices.take() == []
    await notices.expect("gone", *(names - nevers))


async def offline_before(deadline: float, clients: list[Client], address: str) -> None:
    """Wait until an address is offline for all; whoever asks after the deadline is told so.

    When the answer comes says nothing: on a busy machine it waits for its turn.
    """

    async def offline() -> bool:
        asked = time.monotonic()
        found = await knows(clients, address, online=False)
        assert found or asked < deadline, f"{address} is still online"
        return found

    await until(offline, f"{address} is offline")


async def work_in_hand(stay: list[Client], dying: Client) -> Callable[[], Awaitable[None]]:
    """Give one who is about to die work to do; what is returned sees that others do it."""
    asked: asyncio.Queue[Any] = asyncio.Queue()

    async def hang(data: Any) -> None:
        asked.put_nowait(data)
        await asyncio.Event().wait()

    await stay[0].create("queue:kept", volatile=True)
    await until(lambda: queue_known("queue:kept", stay[1], dying), "the queue is known")
    await stay[1].send("queue:kept", "held")
    (held,) = await dying.fetch("queue:kept", wait_s=5)
    await dying.provide("service:kept", hang)
    plain = asyncio.create_task(stay[0].request("service:kept", 1))
    again = asyncio.create_task(stay[1].request("service:kept", 2, idempotent=True))
    assert {await asked.get(), await asked.get()} == {1, 2}
    await stay[0].provide("service:kept", lambda data: data)

    async def done() -> None:
        (item,) = await stay[1].fetch("queue:kept", wait_s=10)
        assert (item.id, item.data) == (held.id, "held")
        assert await item.ack()
        # Never answered by two, and never later than its node is known to be dead.
        with pytest.raises(RequestError) as refused:
            await plain
        assert refused.value.outcome_unknown
        # Its home may have been the node that died: then nobody knows.
        with contextlib.suppress(Overload):
            assert await again == 2

    return done


def trio_is_whole(stay: list[Client], lost: Client) -> Callable[[], asyncio.Future[bool]]:
    """Whether those on two nodes and one on the third reach each other."""

    async def whole() -> bool:
        try:
            for client in stay:
                await client.send(lost.address, "whole")
                await lost.send(client.address, "whole")
        except RequestError:
            return False
        return True

    return whole  # type: ignore[return-value]


async def hears(client: Client, wanted: set[str]) -> None:
    """Wait until a client has got all of that, each once."""
    found: list[str] = []
    async with asyncio.timeout(20):
        while not wanted <= set(found):
            message = await client.receive()
            if message.data in wanted:
                found.append(message.data)
    assert len(found) == len(wanted)


async def a_node_sleeps(trio: Trio) -> None:
    """Longer than its lease and than anybody waits: it comes back, and its clients never left."""
    async with AsyncExitStack() as stack:
        clients = [await trio.client(at, f"sleep{at}") for at in range(3)]
        load = Load(clients)
        stack.push_async_callback(load.close)
        await load.start()
        await load.goes_on()
        asking = [await trio.client(at, f"asks{at}") for at in (0, 1)]
        for client in asking:
            stack.push_async_callback(client.close)
        trio.nodes[2].hold()
        slept = time.monotonic()
        try:
            # A silent peer counts as a miss after the time limit; what it was sent is unknown.
            await silent_peer(asking[0], slept)
            await until(lambda: knows(asking, "user:sleep2", online=False), "who sleeps is offline")
            # The others go on as two.
            before = len(load.ok)
            await until(lambda: len(load.ok) > before + 50, "the others go on")
            await asyncio.sleep(max(0.0, slept + 1.3 * max(LEASE_S, SILENCE_S) - time.monotonic()))
        finally:
            trio.nodes[2].resume()
        await until(lambda: knows(asking, "user:sleep2", online=True), "it is back")
        await until(lambda: "number.lost" in trio.nodes[2].log(), "it has lost its lease")
        await load.heals()
        await load.goes_on()
        await load.stop()
        await load.heals()
        await load.holds()
        assert [client.reconnects for client in clients] == [0, 0, 0]


async def silent_peer(client: Client, slept: float) -> None:
    """Look for nobody while one node is silent, since then (H12)."""
    began = time.monotonic()
    try:
        await client.send("user:nowhere", 1)
    except Unreachable:
        now = time.monotonic()
        # It was asked, and given all the time there is; or, where a busy machine asked late, until
        # its link was given up.
        assert now - began > 0.9 * ANSWER_S or now - slept > SILENCE_S - HEARTBEAT_S
        # And no more than that, however busy: a client's own patience lasts twice as long.
        assert now - began < 2 * (ANSWER_S + SILENCE_S)
    else:
        raise AssertionError("a message to nobody was taken")
    try:
        await client.send("user:sleep2", "unknown")
    except Overload as error:
        if not error.outcome_unknown:
            raise
    except Unreachable:
        pass  # its link is gone already


async def the_registry_restarts(trio: Trio, restart: Callable[[], None]) -> None:
    """Links and traffic go on, and whoever comes after it is found."""
    links = await all_links(trio)
    async with AsyncExitStack() as stack:
        clients = [await trio.client(at, f"goes-on{at}") for at in range(3)]
        load = Load(clients)
        stack.push_async_callback(load.close)
        await load.start()
        await load.goes_on()
        await asyncio.to_thread(restart)
        await load.goes_on(200)
        # Longer than any lease lasts: whoever was not renewed is forgotten by then.
        await asyncio.sleep(1.5 * LEASE_S)
        await load.goes_on()
        for pair, seconds in (await all_links(trio)).items():
            assert seconds > links.pop(pair), f"the link of {pair} broke"
        await load.stop()
        await load.holds(all_published=True)
        assert not load.refused
        assert [client.reconnects for client in clients] == [0, 0, 0]
    # Membership has healed: a node that is killed and comes back finds the others.
    trio.nodes[1].kill()
    trio.nodes[1].start()
    async with AsyncExitStack() as stack:
        clients = [await trio.client(at, f"after{at}") for at in range(3)]
        load = Load(clients)
        stack.push_async_callback(load.close)
        await load.start()
        await load.heals()


async def all_links(trio: Trio) -> dict[tuple[str, str], float]:
    """Wait until each node tells of its links to both others; for how long they have been up."""
    found: dict[tuple[str, str], float] = {}

    async def all_told() -> bool:
        nonlocal found
        found = await asyncio.to_thread(trio.links)
        return len(found) == 6

    await until(all_told, "all nodes are linked")
    return found


async def a_node_forgets_nobody(trio: Trio, app: AppServer) -> None:
    """All nodes die at once; who does not come back when they do is told to be gone."""
    names = ("all0", "all1", "all2")
    notices = Notices(app, *names)
    async with AsyncExitStack() as stack:
        clients = [await trio.client(at, name) for at, name in enumerate(names)]
        for client in clients:
            stack.push_async_callback(client.close)
        await notices.expect("came", *names)
        await asyncio.sleep(WRITTEN_S)
        for node in trio.nodes:
            node.kill()
        await asyncio.gather(clients[0].close(), clients[1].close())
        await asyncio.to_thread(trio.start)
        # The third comes back within the grace time.
        await notices.expect("gone", "all0", "all1")
        assert await clients[2].presence("user:all2")
    await notices.expect("gone", "all2")
