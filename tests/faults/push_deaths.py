"""What happens when processes of push die, stop or sleep under load: nothing is lost (P7)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

from .figures import percentiles, tell
from .push_crowd import TOPIC, Crowd, DeviceProcess, HubUser
from .push_layout import AppKey, PushLayout, PushProcess, make_app
from .push_sender import Sender, Targets
from .trio import until

Fault = Callable[[], Awaitable[None]]
# Over two comets, more on one of them than are handed a note in one go.
CROWD = 140
CROWDED = "crowded"
# How long somebody is dead or asleep.
_DOWN_S = (0.2, 3.0)
_ASLEEP_S = (1.0, 6.0)
# Between faults: some happen while the one before is not over for all.
_REST_S = (0.0, 2.0)


class Faults:
    """What may happen, in an order that a seed decides."""

    def __init__(self, layout: PushLayout, crowd: Crowd, rng: Random) -> None:
        self._layout = layout
        self._crowd = crowd
        self._rng = rng
        self.done: Counter[str] = Counter()
        self._all: dict[str, Fault] = {
            "a comet is killed": lambda: self._kill(self._comet()),
            "a comet is stopped": lambda: self._stop(self._comet()),
            "a comet sleeps": lambda: self._sleep(self._comet()),
            "the web is killed": lambda: self._kill(layout["w1"]),
            "the admin is killed": lambda: self._kill(layout["a1"]),
            "Redis restarts": self._restart_redis,
            "Redis sleeps": lambda: self._sleep(layout.redis),
            "devices are killed": self._kill_devices,
        }

    async def happen(self, count: int) -> None:
        """Let so many happen: each at least once, if there are enough."""
        names = list(self._all) * (count // len(self._all) + 1)
        self._rng.shuffle(rest := names[len(self._all) :])
        self._rng.shuffle(first := names[: len(self._all)])
        for name in (first + rest)[:count]:
            self.done[name] += 1
            await self._all[name]()
            await asyncio.sleep(self._rng.uniform(*_REST_S))

    def _comet(self) -> PushProcess:
        return self._rng.choice(self._layout.comets())

    async def _kill(self, node: PushProcess) -> None:
        node.kill()
        await asyncio.sleep(self._rng.uniform(*_DOWN_S))
        await asyncio.to_thread(node.start)

    async def _stop(self, node: PushProcess) -> None:
        await asyncio.to_thread(node.stop)
        await asyncio.to_thread(node.start)

    async def _sleep(self, node: PushProcess | object) -> None:
        node.hold()  # type: ignore[attr-defined]
        try:
            await asyncio.sleep(self._rng.uniform(*_ASLEEP_S))
        finally:
            node.resume()  # type: ignore[attr-defined]

    async def _restart_redis(self) -> None:
        await asyncio.to_thread(self._layout.redis.kill)
        await asyncio.sleep(self._rng.uniform(*_DOWN_S))
        await asyncio.to_thread(self._layout.redis.start)

    async def _kill_devices(self) -> None:
        process = self._rng.choice(self._crowd.processes)
        process.kill()
        await asyncio.sleep(self._rng.uniform(*_DOWN_S))
        await asyncio.to_thread(process.start)


async def anything_dies(
    layout: PushLayout, folder: Path, seed: int, faults: int, groups: int, each: int
) -> None:
    """Whatever is answered arrives at all it was aimed at, and is shown once."""
    rng = Random(seed)
    name = f"deaths{seed}"
    app = await asyncio.to_thread(make_app, layout["a1"], name)
    await layout.whole(app)
    with ExitStack() as closing:
        crowd, targets = await _crowd(layout, folder, app, groups, each, closing)
        crowd.users = [HubUser(layout["c2"], name, user) for user in targets.users]
        being = [asyncio.create_task(user.run()) for user in crowd.users]
        for user in targets.users:
            await _whole_user(layout["a1"], app, user, targets.users[user])
        sender = Sender(layout["a1"], app, targets, rng)
        sending = asyncio.create_task(sender.run(0.03))
        happening = Faults(layout, crowd, Random(seed))
        await happening.happen(faults)
        sender.stopping = True
        await sending
        ended = time.monotonic()

        def arrived() -> bool:
            return not sender.missing(crowd.given())

        # If not, it is told below how many did not.
        with suppress(AssertionError):
            await until(arrived, "every note has arrived")
        late_s = time.monotonic() - ended
        missing, twice = sender.missing(crowd.given()), crowd.twice()
        still_there = await sender.still_there()
        for task in being:
            task.cancel()
        await asyncio.wait(being)
        failed = [task.exception() for task in being if not task.cancelled()]
        logs = [process.log() for process in crowd.processes]
    tell(
        "push: anything dies under load",
        seed=seed,
        faults=faults,
        devices=groups * each + CROWD,
        users=len(crowd.users),
        notes=len(sender.answered),
        aimed=sum(len(shot.targets) for shot in sender.answered.values()),
        cancelled=len(sender.cancelled),
        unanswered=sender.unanswered,
        lost=len(missing),
        twice=len(twice),
        **{"all there after, s": round(late_s, 2)},
        **percentiles("answered in", sender.times),
        **happening.done,
    )
    assert not any(logs), logs
    assert not failed, failed
    assert len(sender.answered) > 10 * faults
    assert not missing, missing[:10]
    assert not twice, twice[:10]
    assert sender.cancelled
    assert not still_there, still_there[:10]


async def _crowd(
    layout: PushLayout, folder: Path, app: AppKey, groups: int, each: int, closing: ExitStack
) -> tuple[Crowd, Targets]:
    """Devices in groups, some of which belong to a user; and a large group beside."""
    named = {f"group{group}": [f"d{group}-{n}" for n in range(each)] for group in range(groups)}
    devices = [device for some in named.values() for device in some]
    crowded = [f"x{n}" for n in range(CROWD)]

    def begin(name: str) -> DeviceProcess:
        some, topic = (crowded, CROWDED) if name == CROWDED else (named[name], TOPIC)
        process = DeviceProcess(folder / name, layout["w1"], app, some, topic)
        closing.callback(process.kill)
        return process

    processes = await asyncio.gather(*(asyncio.to_thread(begin, one) for one in (*named, CROWDED)))
    await until(lambda: all(each.subscribed for each in processes), "devices have subscribed")
    users = {f"u{n}": some[0] for n, some in enumerate(named.values())}
    return Crowd(processes, []), Targets(devices, users, CROWDED, crowded)


async def _whole_user(admin: PushProcess, app: AppKey, user: str, device: str) -> None:
    """Bind a device to a user, and wait until her session is a client as well."""
    bound = await asyncio.to_thread(
        app.post, admin, "/v1/push/users/bind", user=user, device=device
    )
    assert bound.status == 200, bound
    path = f"/v1/push/users?user={user}"

    def whole() -> bool:
        found = admin.ask("GET", path, None, app.headers("GET", path, b"")).body
        return len(found["clients"]) == 2

    await until(whole, f"{user} has a device and a session")
