"""The simulated loop: asyncio's promises kept, time virtual, the rest decided by the seed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from chappe.simulation import CallbackFailed, Deadlock, Livelock, NotSimulated, Simulation


def run(coroutine: Coroutine[Any, Any, Any], seed: int = 0, **options: Any) -> Any:
    return Simulation(seed, **options).run(coroutine)


def test_an_hour_of_sleep_takes_no_time_and_moves_the_loops_clock():
    async def main() -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - before

    assert 3600 <= run(main()) < 3600.01


def test_timers_fire_in_the_order_of_their_times():
    async def main() -> list[int]:
        fired: list[int] = []
        loop = asyncio.get_running_loop()
        for delay in (3, 1, 2):
            loop.call_later(delay, fired.append, delay)
        await asyncio.sleep(4)
        return fired

    assert run(main()) == [1, 2, 3]


def test_callbacks_given_to_call_soon_run_in_order_for_every_seed():
    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(1)
        return seen

    for seed in range(20):
        assert run(main(), seed) == list(range(20))


def test_timers_of_one_instant_are_ordered_by_the_seed():
    async def main() -> tuple[int, ...]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(6):
            loop.call_at(loop.time() + 1, seen.append, number)
        await asyncio.sleep(2)
        return tuple(seen)

    orders = {run(main(), seed) for seed in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == list(range(6)) for order in orders)
    assert run(main(), 3) == run(main(), 3)


def test_a_cancelled_timer_does_not_fire_and_does_not_hold_up_the_end():
    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(1, pytest.fail, "cancelled").cancel()
        await asyncio.sleep(2)
        for _ in range(5000):
            loop.call_later(1e9, print).cancel()
        await asyncio.sleep(1)
        return loop.time()

    assert run(main()) < 4


def test_cancelling_a_task_raises_inside_it():
    async def main() -> bool:
        task = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert run(main())


def test_gather_and_task_groups_work():
    async def value(number: int) -> int:
        await asyncio.sleep(number)
        return number

    async def main() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(value(n)) for n in (3, 1)]
        return [*await asyncio.gather(value(2), value(1)), *(t.result() for t in tasks)]

    assert run(main()) == [2, 1, 3, 1]


def test_a_timeout_ends_what_takes_longer():
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        return asyncio.get_running_loop().time()

    assert 10 <= run(main()) < 10.1


def test_a_task_group_cancels_its_tasks_in_the_same_order_each_time():
    async def member(number: int, cancelled: list[int]) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError

    async def main() -> list[int]:
        cancelled: list[int] = []
        with pytest.raises(ExceptionGroup):
            await together(cancelled)
        return cancelled

    async def together(cancelled: list[int]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            for number in range(200):
                group.create_task(member(number, cancelled))

    assert run(main()) == run(main())


def test_waiting_for_nothing_is_a_deadlock_that_names_the_task():
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="forever"):
        run(forever())


def test_going_round_in_circles_is_a_livelock():
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="1000 steps"):
        run(spin(), steps_max=1000)


def test_an_error_in_a_callback_fails_the_run():
    async def main() -> None:
        asyncio.get_running_loop().call_soon(int, "x")
        await asyncio.sleep(1)
        pytest.fail("the run went on")

    with pytest.raises(CallbackFailed) as caught:
        run(main())
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_in_a_task_that_nobody_awaits_fails_the_run():
    async def fail() -> None:
        raise ValueError("unseen")

    async def main() -> None:
        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(1)

    with pytest.raises(CallbackFailed, match="unseen"):
        run(main())


def test_what_is_left_over_is_cancelled_and_may_clean_up():
    cleaned: list[str] = []

    async def worker() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            cleaned.append("worker")

    async def main() -> None:
        task = asyncio.create_task(worker(), name="worker")
        await asyncio.sleep(1)
        assert not task.done()

    run(main())
    assert cleaned == ["worker"]


def test_threads_executors_and_sockets_are_refused():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(NotSimulated, match="run_in_executor"):
            await asyncio.to_thread(print)
        with pytest.raises(NotSimulated, match="getaddrinfo"):
            await loop.getaddrinfo("localhost", 80)
        with pytest.raises(NotSimulated, match="add_reader"):
            loop.add_reader(0, print)
        with pytest.raises(NotSimulated, match="create_server"):
            await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        refused: list[Exception] = []

        def call() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except NotSimulated as error:
                refused.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(30)
        assert refused

    run(main())


def test_a_failing_run_tells_how_to_replay_it(capsys: pytest.CaptureFixture[str]):
    async def main() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        run(main(), 77)
    assert "CHAPPE_SEED=77 " in caught.value.__notes__[0]
    assert "CHAPPE_SEED=77 " in capsys.readouterr().err


def test_streams_of_randomness_are_independent_and_repeat():
    one, other = Simulation(5), Simulation(5)
    one.stream("a").random()
    assert one.entropy(16) == other.entropy(16)
    assert one.stream("a").random() == other.stream("a").random()
    assert one.stream("a").random() != one.stream("b").random()
    one.loop.close()
    other.loop.close()
