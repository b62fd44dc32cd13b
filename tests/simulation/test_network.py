"""The simulated network's faults: what each does, and to whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from chappe.errors import ConfigError
from chappe.simulation import Faults, NotSimulated, Simulation
from tests.simulation.grounds import Recorder


class Pair:
    """Two recorders on two hosts."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.network = simulation.network
        self.far = Recorder()

    async def connect(self) -> None:
        listener = self.network.listen(lambda: self.far, "hub", 80, None)
        self.near = await self.network.on_host("home", self._dial())
        await self.far.until_event("made")
        listener.close()

    async def _dial(self) -> Recorder:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Recorder, "hub", 80))[1]


def with_pair(
    scenario: Callable[[Pair], Awaitable[None]], faults: Faults | None = None, seed: int = 1
) -> Simulation:
    simulation = Simulation(seed, faults=faults)

    async def main() -> None:
        pair = Pair(simulation)
        await pair.connect()
        await scenario(pair)

    simulation.run(main())
    return simulation


def test_a_task_connects_from_its_host():
    async def scenario(pair: Pair) -> None:
        assert pair.far.transport.get_extra_info("peername")[0] == "home"

    with_pair(scenario)


def test_latency_holds_data_up():
    async def scenario(pair: Pair) -> None:
        before = pair.simulation.loop.time()
        pair.near.transport.write(b"x")
        await pair.far.until_received(1)
        assert 3 <= pair.simulation.loop.time() - before < 4.1

    with_pair(scenario, Faults(latency_s=(3.0, 4.0)))


def test_bandwidth_bounds_how_fast_data_arrives():
    async def scenario(pair: Pair) -> None:
        before = pair.simulation.loop.time()
        pair.near.transport.write(bytes(100_000))
        await pair.far.until_received(100_000)
        assert pair.simulation.loop.time() - before >= 10

    with_pair(scenario, Faults(bytes_per_s=10_000))


def test_data_is_cut_anywhere():
    sizes = set()
    for seed in range(5):
        simulation = with_pair(_write_a_hundred, Faults(cut=0.9), seed)
        sizes |= {line.split("data=")[1] for line in simulation.trace.lines if " data " in line}
    assert len(sizes) > 20


async def _write_a_hundred(pair: Pair) -> None:
    pair.near.transport.write(bytes(100))
    await pair.far.until_received(100)


def test_a_partition_holds_data_back_until_it_heals():
    async def scenario(pair: Pair) -> None:
        pair.network.partition(["home"], ["hub"])
        pair.near.transport.write(b"through")
        pair.far.transport.write(b"back")
        await asyncio.sleep(20)
        assert not pair.far.received
        assert not pair.near.received
        pair.network.heal()
        await pair.far.until_received(7)
        await pair.near.until_received(4)

    with_pair(scenario)


def test_a_one_way_partition_lets_the_other_way_through():
    async def scenario(pair: Pair) -> None:
        pair.network.partition(["home"], ["hub"], both_ways=False)
        pair.near.transport.write(b"x")
        pair.far.transport.write(b"y")
        await pair.near.until_received(1)
        await asyncio.sleep(5)
        assert not pair.far.received
        pair.network.heal()
        await pair.far.until_received(1)

    with_pair(scenario)


def test_a_long_partition_ends_the_connection_of_whoever_wrote():
    async def scenario(pair: Pair) -> None:
        pair.network.partition(["home"], ["hub"])
        pair.near.transport.write(b"x")
        await pair.near.until_event("lost")
        assert isinstance(pair.near.error, TimeoutError)
        assert not pair.far.lost
        pair.network.heal()
        pair.far.transport.write(b"still there?")
        await pair.far.until_event("lost")
        assert isinstance(pair.far.error, ConnectionResetError)

    with_pair(scenario)


def test_a_partition_does_not_end_a_connection_that_is_idle():
    async def scenario(pair: Pair) -> None:
        pair.network.partition(["home"], ["hub"])
        await asyncio.sleep(1000)
        pair.network.heal()
        pair.near.transport.write(b"hello again")
        await pair.far.until_received(11)

    with_pair(scenario)


def test_a_vanished_peer_is_half_open_until_somebody_writes():
    async def scenario(pair: Pair) -> None:
        pair.network.vanish("home")
        await asyncio.sleep(1000)
        assert pair.far.events == ["made"]
        pair.far.transport.write(b"anybody?")
        await pair.far.until_event("lost")
        assert isinstance(pair.far.error, TimeoutError)
        assert not pair.near.lost

    with_pair(scenario)


def test_a_peer_that_vanishes_before_it_was_accepted_leaves_nothing_behind():
    simulation = Simulation(4, faults=Faults(latency_s=(1, 1)))
    network = simulation.network

    async def main() -> None:
        network.listen(Recorder, "hub", 80, None)
        await simulation.loop.create_connection(Recorder, "hub", 80, local_addr=("home", 0))
        network.vanish("home")
        await asyncio.sleep(100)
        assert not network.streams
        assert not network.link("home", "hub").pipes

    simulation.run(main())


def test_a_reset_is_told_to_both_ends_once():
    async def scenario(pair: Pair) -> None:
        (stream,) = pair.network.streams_of("home")
        pair.network.reset(stream)
        await pair.far.until_event("lost")
        for end in (pair.near, pair.far):
            assert isinstance(end.error, ConnectionResetError)
            assert end.lost == 1
        await asyncio.sleep(1)
        assert not pair.network.streams
        assert not pair.network.link("home", "hub").pipes

    with_pair(scenario)


def test_links_reset_connections_at_random_moments():
    async def scenario(pair: Pair) -> None:
        for number in range(10_000):
            pair.near.transport.write(bytes([number % 256]))
            await asyncio.sleep(0.001)
            if pair.near.lost:
                break
        await pair.far.until_event("lost")
        assert 0 < len(pair.far.received) < 10_000

    with_pair(scenario, Faults(reset=0.01))


def test_a_stall_holds_up_what_is_behind_it_too():
    async def scenario(pair: Pair) -> None:
        before = pair.simulation.loop.time()
        for number in range(50):
            pair.near.transport.write(bytes([number]))
        await pair.far.until_received(50)
        assert pair.far.received == bytes(range(50))
        assert pair.simulation.loop.time() - before >= 7

    with_pair(scenario, Faults(stall=0.5, stall_s=(7, 9)))


def test_connections_are_refused_by_chance():
    simulation = Simulation(4, faults=Faults(refuse=0.5))

    async def main() -> int:
        simulation.network.listen(Recorder, "hub", 80, None)
        refused = 0
        for _ in range(100):
            try:
                await simulation.loop.create_connection(Recorder, "hub", 80)
            except ConnectionRefusedError:
                refused += 1
        return refused

    assert 25 < simulation.run(main()) < 75


def test_connecting_through_a_partition_waits_for_healing_or_times_out():
    simulation = Simulation(4)
    network = simulation.network

    async def dial() -> float:
        await simulation.loop.create_connection(Recorder, "hub", 80)
        return simulation.loop.time()

    async def main() -> None:
        network.listen(Recorder, "hub", 80, None)
        network.partition(["home"], ["hub"])
        with pytest.raises(TimeoutError):
            await network.on_host("home", dial())
        dialling = network.on_host("home", dial())
        await asyncio.sleep(5)
        assert not dialling.done()
        network.heal()
        await dialling

    simulation.run(main())


def test_a_cancelled_connect_leaves_nothing_behind():
    simulation = Simulation(4, faults=Faults(latency_s=(1, 2)))

    async def dial() -> None:
        await simulation.loop.create_connection(Recorder, "hub", 80, local_addr=("home", 0))
        await asyncio.sleep(100)

    async def main() -> None:
        simulation.network.listen(Recorder, "hub", 80, None)
        for after in (0.5, 1.5, 2.5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(dial(), after)
        for stream in simulation.network.streams_of("home"):
            stream.abort()
        await asyncio.sleep(20)
        assert not simulation.network.streams

    simulation.run(main())


def test_a_port_is_had_once_and_tls_is_refused():
    simulation = Simulation(4)
    network = simulation.network
    listener = network.listen(Recorder, "hub", 80, None)
    with pytest.raises(ConfigError, match="hub:80"):
        network.listen(Recorder, "hub", 80, None)
    listener.close()
    assert network.listen(Recorder, "hub", 80, None).port == 80
    assert network.listen(Recorder, "hub", 0, None).port != 80
    with pytest.raises(NotSimulated, match="TLS"):
        network.listen(Recorder, "hub", 0, object())  # type: ignore[arg-type]
    simulation.loop.close()


class Mailbox(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: list[tuple[bytes, tuple[str, int]]] = []
        self.errors: list[Exception] = []

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.received.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)


def _exchange(faults: Faults, count: int, seed: int = 2) -> list[int]:
    """Send numbered datagrams from one host to another; the numbers as they came."""
    simulation = Simulation(seed, faults=faults)

    async def main() -> list[int]:
        loop = simulation.loop
        far, box = await loop.create_datagram_endpoint(Mailbox, local_addr=("hub", 9))
        near, _ = await loop.create_datagram_endpoint(
            Mailbox, local_addr=("home", 0), remote_addr=("hub", 9)
        )
        for number in range(count):
            near.sendto(number.to_bytes(4))
            await asyncio.sleep(0.001)
        await asyncio.sleep(10)
        assert all(addr == near.get_extra_info("sockname") for _, addr in box.received)
        near.close()
        far.close()
        return [int.from_bytes(data) for data, _ in box.received]

    return simulation.run(main())


def test_datagrams_arrive_on_a_good_link():
    assert _exchange(Faults(latency_s=(0.01, 0.01)), 100) == list(range(100))


def test_datagrams_get_lost_doubled_and_out_of_order():
    lossy = _exchange(Faults(latency_s=(0.01, 0.01), loss=0.3), 1000)
    assert 500 < len(lossy) < 900
    doubled = _exchange(Faults(latency_s=(0.01, 0.01), duplicate=0.3), 1000)
    assert 1100 < len(doubled) < 1500
    shuffled = _exchange(Faults(latency_s=(0.001, 0.1)), 1000)
    assert sorted(shuffled) == list(range(1000)) != shuffled
    assert shuffled == _exchange(Faults(latency_s=(0.001, 0.1)), 1000)


def test_a_datagram_too_large_is_an_error_for_its_sender():
    simulation = Simulation(2)

    async def main() -> None:
        endpoint, box = await simulation.loop.create_datagram_endpoint(Mailbox)
        endpoint.sendto(bytes(65_508), ("hub", 9))
        await asyncio.sleep(1)
        assert len(box.errors) == 1
        endpoint.close()

    simulation.run(main())


def test_a_host_that_vanishes_gives_its_ports_free():
    async def scenario(simulation: Simulation) -> None:
        loop = simulation.loop
        lost, box = await loop.create_datagram_endpoint(Mailbox, local_addr=("hub", 9))
        simulation.network.vanish("hub")
        again, second = await loop.create_datagram_endpoint(Mailbox, local_addr=("hub", 9))
        # Whoever was killed may have been about to close it.
        lost.close()
        near, _ = await loop.create_datagram_endpoint(Mailbox, local_addr=("client", 9))
        near.sendto(b"x", ("hub", 9))
        await asyncio.sleep(1)
        assert (box.received, second.received) == ([], [(b"x", ("client", 9))])
        again.close()
        near.close()

    simulation = Simulation(1)
    simulation.run(scenario(simulation))
