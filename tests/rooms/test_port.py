from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from chappe.rooms.port import Port
from chappe.simulation import Simulation

RUNNERS = {"asyncio": asyncio.run, "uvloop": uvloop.run}
HOST = "127.0.0.1"


class Ear:
    def __init__(self) -> None:
        self.heard: list[tuple[bytes, tuple[str, int]]] = []
        self.news = asyncio.Event()

    def __call__(self, data: bytes, source: tuple[str, int]) -> None:
        self.heard.append((data, source))
        self.news.set()

    async def hear(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.heard) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture(params=RUNNERS)
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    return RUNNERS[request.param]


async def opened() -> tuple[Port, Ear]:
    ear = Ear()
    port = Port(ear, 1 << 20)
    await port.open(HOST, 0)
    return port, ear


def test_a_datagram_arrives_with_where_it_came_from(run):
    async def story() -> None:
        (left, _), (right, ear) = await opened(), await opened()
        left.send(right.endpoint, b"hello")
        await ear.hear(1)
        assert ear.heard == [(b"hello", left.endpoint)]
        left.close()
        right.close()

    run(story())


# R2: datagrams may be lost; what the kernel says of one disturbs no other.
def test_what_cannot_be_sent_disturbs_nothing(run):
    async def story() -> None:
        (left, _), (right, ear) = await opened(), await opened()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
            nobody.bind((HOST, 0))
            refused = nobody.getsockname()
        for _ in range(3):
            for to in (refused, ("a.name.test", 9), ("::1", 9), (HOST, 0)):
                left.send(to, b"x")
            left.send(right.endpoint, b"x" * 70_000)
            await asyncio.sleep(0.01)
        left.send(right.endpoint, b"still here")
        await ear.hear(1)
        assert ear.heard[-1][0] == b"still here"
        assert left.errors + left.unsent >= 9
        left.close()
        right.close()

    run(story())


def test_a_port_that_was_closed_from_below_opens_again_at_the_same_place(run):
    async def story() -> None:
        (left, _), (right, ear) = await opened(), await opened()
        before = right.endpoint
        assert right._transport is not None
        right._transport.abort()
        async with asyncio.timeout(10):
            while not ear.heard:
                left.send(before, b"again")
                await asyncio.sleep(0.01)
        assert right.endpoint == before
        left.close()
        right.close()
        right.send(left.endpoint, b"after the end")
        await asyncio.sleep(0)
        assert right.unsent == 1

    run(story())


def test_the_kernel_keeps_bursts(run):
    async def story() -> None:
        (left, _), (right, ear) = await opened(), await opened()
        assert right._transport is not None
        size = right._transport.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF
        )
        assert size >= 1 << 20
        for number in range(500):
            left.send(right.endpoint, b"%d" % number)
        await ear.hear(500)
        left.close()
        right.close()

    run(story())


def test_a_port_on_a_simulated_network():
    async def story() -> None:
        ears = [Ear(), Ear()]
        ports = [Port(ear, 1 << 20) for ear in ears]
        for number, port in enumerate(ports):
            await port.open(f"n{number}", 7404)
        ports[0].send(("n1", 7404), b"hello")
        await ears[1].hear(1)
        assert ears[1].heard == [(b"hello", ("n0", 7404))]

    Simulation(1).run(story())
