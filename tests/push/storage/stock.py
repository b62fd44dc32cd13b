"""States with everything in them that push may remember, and what they say when they are asked."""

from __future__ import annotations

from typing import Any

from chappe.push.app import Limits, PushApp
from chappe.push.job import Job
from chappe.push.note import Note
from chappe.push.seal import Seal
from chappe.push.state.states import States
from chappe.push.state.topic import Mark
from chappe.push.state.user import TokenHolder
from tests.contract.push_states import DAY_MS, MOST, NAMES, NOW_MS, a_note, client_id, job_id

SEAL = Seal(bytes(32), bytes)
HOUR_MS = 3600 * 1000
# More than a bucket holds in one piece, and a set of subscribers.
CROWD = 450


class Stock:
    """What was put in, by what it is asked for again."""

    def __init__(self) -> None:
        self.apps: list[str] = []
        self.jobs: list[str] = []
        self.clients: list[str] = []
        self.digests: list[bytes] = []
        self.notes: list[Note] = []
        self.expired: list[Note] = []

    async def fill(self, states: States) -> Stock:
        """Put everything into states."""
        await self._fill_meta(states)
        await self._fill_user(states)
        await self._fill_message(states)
        await self._fill_topic(states)
        return self

    async def _fill_meta(self, states: States) -> None:
        meta = states.meta
        for key in ("app", "b:c", "日本"):
            secret = SEAL.close(b"secret of " + key.encode(), key)
            app = PushApp(
                key=key,
                name=f"name {key}",
                open=key == "app",
                sealed_secret=secret,
                created_ms=NOW_MS,
                limits=Limits(sends_per_s=3.5, devices_max=7),
            )
            assert await meta.put_app(app, new=True)
            self.apps.append(key)
        for number in range(30):
            job = _job(NOW_MS - number)
            await meta.put_job(job, number)
            self.jobs.append(job.id)
        await meta.count({self.jobs[0]: {"sent": 5, "arrived": 4, "clicked": 3}})
        await meta.count({self.jobs[1]: {"offline": 2, "dropped": 1}})
        assert await meta.cancel_job(self.jobs[2], NOW_MS + 5)
        await meta.put_job(_job(NOW_MS - 40 * DAY_MS), 1)
        await meta.click([("c070000100000000", "p070000100000000")])
        assert await meta.claim("a:nonce*", NOW_MS + HOUR_MS)
        await meta.keep("identity", SEAL.close(b"x" * 32, "identity"), 0)
        for name in NAMES:
            await meta.keep(f"send {name}", name.encode() + b"\0\xff", NOW_MS + HOUR_MS)
        assert await meta.spend(["device 1", "device 1", "a:b"], 5, NOW_MS + HOUR_MS)

    async def _fill_user(self, states: States) -> None:
        user = states.user
        for device in NAMES:
            found = await user.claim_client("app", device, client_id())
            if found.id not in self.clients:
                self.clients.append(found.id)
        for _ in range(CROWD):
            new = client_id()
            await user.claim_client("b:c", f"device {new}", new)
            self.clients.append(new)
        for client in self.clients[:5]:
            assert await user.bind("app", "alice", client)
        assert await user.bind("app", "日本", self.clients[5])
        for number, client in enumerate(self.clients[:20]):
            for copy in range(3):
                digest = bytes([number, copy, 7, number]) + bytes(12)
                await user.put_token(digest, TokenHolder(client, NOW_MS + HOUR_MS + copy))
                self.digests.append(digest)
        for client in self.clients[:3]:
            assert await user.put_bridge(client, "webpush", SEAL.close(client.encode(), client))
        late = bytes([255] * 16)
        await user.put_token(late, TokenHolder(self.clients[0], NOW_MS - 1))
        self.digests.append(late)

    async def _fill_message(self, states: States) -> None:
        message = states.message
        for number in range(12):
            collapse = f"k{number % 3}" if number > 8 else None
            note = a_note(life_ms=HOUR_MS + number, collapse=collapse, priority=number % 3)
            await message.put(note)
            self.notes.append(note)
        # Few wait for one client, many for another, and some that collapse for a third.
        for client, notes in zip(
            self.clients, (self.notes[:1], self.notes[:8][::-1], self.notes[8:]), strict=False
        ):
            for note in notes:
                await message.add(note, [client], MOST)
        soon = a_note(life_ms=1500)
        await message.put(soon)
        await message.add(soon, self.clients[:4], MOST)
        self.expired.append(soon)

    async def _fill_topic(self, states: States) -> None:
        topic = states.topic
        crowd = self.clients[-CROWD:]
        for client in crowd:
            assert await topic.subscribe("b:c", client, ["news", "sports:1"], 3, NOW_MS, 100)
        many = [f"topic {number}" for number in range(40)]
        assert await topic.subscribe("app", self.clients[0], many, -1, NOW_MS, 100)
        positions = []
        for number in range(5):
            collapse = "same" if number > 2 else None
            note = a_note(life_ms=HOUR_MS)
            at = NOW_MS + number
            args = ("b:c", "news", note.id, at, note.expires_ms, collapse, MOST)
            positions.append(await topic.append(*args))
        await topic.append("b:c", "news", a_note().id, NOW_MS, NOW_MS + 1500, "soon", MOST)
        await topic.append("日本", "nobody", "m070000100000000", NOW_MS, NOW_MS + DAY_MS, None, 5)
        mark = Mark(positions[0], (positions[2], positions[4]))
        await topic.advance("b:c", {(crowd[0], "news"): mark, (crowd[1], "news"): mark})

    async def told(self, states: States, now_ms: int) -> dict[str, Any]:
        """What states say of all of it, by the ways that push asks."""
        meta, user, message, topic = states.meta, states.user, states.message, states.topic
        crowd = self.clients[-CROWD:]
        return {
            "apps": await meta.list_apps("", 100),
            "named": await meta.app_named("name b:c"),
            "jobs": await meta.jobs(self.jobs),
            "listed": sorted(job.id for job, _ in await meta.list_jobs("app", None, 100)),
            "kept": [await meta.kept(f"send {name}") for name in NAMES],
            "identity": await meta.kept("identity"),
            "clients": await user.clients(self.clients),
            "devices": await user.clients_of_devices("app", NAMES),
            "users": {
                name: sorted(ids)
                for name, ids in (await user.clients_of_users("app", ["alice", "日本"])).items()
            },
            "counts": [await user.count_clients(app) for app in self.apps],
            "tokens": await user.tokens(self.digests, now_ms),
            "bridges": await user.bridges(self.clients, "webpush"),
            "bodies": await message.bodies([note.id for note in self.notes + self.expired]),
            "waiting": await message.waiting(self.clients[:10]),
            "topics": [await topic.list_topics(app, "", 100) for app in self.apps],
            "marks": [await topic.topics_of("b:c", client) for client in crowd],
            "many": await topic.topics_of("app", self.clients[0]),
            "subscribers": sorted(await topic.list_clients("b:c", "news", "", 1000)),
            "news": await topic.since("b:c", {"news": 0, "sports:1": 0}, now_ms, 100),
        }


def _job(created_ms: int) -> Job:
    return Job(
        id=job_id(),
        app="app",
        note="p070000100000000",
        aim="user",
        target="alice",
        name="",
        created_ms=created_ms,
        expires_ms=created_ms + DAY_MS,
    )
