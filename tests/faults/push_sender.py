"""An app's server under load: it sends in every way there is, signs, and takes some of it back."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

import httpx

from .push_crowd import TOPIC
from .push_layout import AppKey, PushProcess, encode

# No slower than an answer may be: a comet that hangs is waited for so long, and so is the store.
_ANSWER_S = 20.0
_PAUSE_S = 0.2
# Topics that the server subscribes devices to, of each device.
_OWN_TOPICS = 3


class Targets(NamedTuple):
    """Whom there is to send to."""

    devices: list[str]
    # By user, her device; she also has a session at a hub.
    users: Mapping[str, str]
    # A topic with more subscribers than a comet hands a note to in one go.
    crowded: str
    crowd: list[str]


class Shot(NamedTuple):
    """A send, and what is to become of it."""

    to: dict[str, Any]
    # All of these are to have it; with `once`, one of them.
    targets: list[str]
    once: bool = False
    # Taken back as soon as it is answered.
    cancelled: bool = False
    # A subscription that is answered before.
    subscribe: dict[str, Any] | None = None


class Sender:
    """To devices, to some of them, to users, to topics; some sends it insists on, others it makes
    once."""

    def __init__(self, admin: PushProcess, app: AppKey, targets: Targets, rng: Random) -> None:
        self._admin = admin
        self._app = app
        self._targets = targets
        self._rng = rng
        self._numbers = itertools.count()
        # What was answered: by note, whom it is for; and what was taken back.
        self.answered: dict[str, Shot] = {}
        self.cancelled: list[str] = []
        self.unanswered = 0
        self.stopping = False
        self.times: list[float] = []

    async def run(self, pause_s: float) -> None:
        """Send until told to stop; what is under way is finished first."""
        async with httpx.AsyncClient(timeout=_ANSWER_S) as http:
            while not self.stopping:
                await asyncio.sleep(pause_s)
                await self._send(http, next(self._numbers), self._aim())

    def missing(self, given: Mapping[str, set[str]]) -> list[tuple[str, str, dict[str, Any]]]:
        """Notes, whom they did not come to, and how they were sent."""
        found: list[tuple[str, str, dict[str, Any]]] = []
        for note, shot in self.answered.items():
            without = [one for one in shot.targets if note not in given[one]]
            if not shot.once or len(without) == len(shot.targets):
                found += [(note, one, shot.to) for one in without]
        return found

    async def still_there(self) -> list[str]:
        """Those of the notes that were taken back that can be taken back again."""
        async with httpx.AsyncClient(timeout=_ANSWER_S) as http:
            answers = [(note, await self._cancel(http, note)) for note in self.cancelled]
        return [note for note, status in answers if status != 404]

    async def _send(self, http: httpx.AsyncClient, number: int, shot: Shot) -> None:
        if shot.subscribe is not None:
            await self._insist(http, "/v1/push/topics/subscribe", shot.subscribe)
        fields: dict[str, Any] = {**shot.to, "data": number, "name": f"n{number}"}
        if number % 2 == 0:
            fields["idempotency_key"] = f"key-{number}"
            response = await self._insist(http, "/v1/push/send", fields)
        else:
            response = await self._post(http, "/v1/push/send", fields)
        if response is None:
            return
        note = response.json()["note"]
        if shot.cancelled:
            assert await self._cancel(http, note) in (200, 404)
            self.cancelled.append(note)
        else:
            self.answered[note] = shot

    async def _cancel(self, http: httpx.AsyncClient, note: str) -> int:
        return (await self._insist(http, f"/v1/push/notes/{note}/cancel", {}, 404)).status_code

    async def _insist(
        self, http: httpx.AsyncClient, path: str, fields: dict[str, Any], *well: int
    ) -> httpx.Response:
        while (response := await self._post(http, path, fields, *well)) is None:
            await asyncio.sleep(_PAUSE_S)
        return response

    async def _post(
        self, http: httpx.AsyncClient, path: str, fields: dict[str, Any], *well: int
    ) -> httpx.Response | None:
        """What was answered; None if nothing was, or that it is to be asked later."""
        body, began = encode(fields), time.monotonic()
        headers = self._app.headers("POST", path, body)
        url = self._admin.addresses["http"] + path
        try:
            response = await http.post(url, content=body, headers=headers)
        except httpx.HTTPError:
            self.unanswered += 1
            return None
        self.times.append(time.monotonic() - began)
        if response.status_code in (200, *well):
            return response
        # Nothing is refused for good, whatever dies.
        assert response.status_code in (503, 429), response.text
        self.unanswered += 1
        return None

    def _aim(self) -> Shot:
        ways: dict[Callable[[], Shot], int] = {
            self._to_one: 4,
            self._to_some: 4,
            self._to_topic: 4,
            self._to_user: 3,
            self._to_user_once: 3,
            self._to_own_topic: 3,
            self._taken_back: 3,
            self._to_crowd: 1,
        }
        return self._rng.choices(list(ways), list(ways.values()))[0]()

    def _to_one(self) -> Shot:
        device = self._rng.choice(self._targets.devices)
        return Shot({"device": device}, [device])

    def _to_some(self) -> Shot:
        some = self._rng.sample(self._targets.devices, min(3, len(self._targets.devices)))
        return Shot({"device": some}, some)

    def _to_topic(self) -> Shot:
        return Shot({"topic": TOPIC}, self._targets.devices)

    def _to_crowd(self) -> Shot:
        return Shot({"topic": self._targets.crowded}, self._targets.crowd)

    def _to_user(self) -> Shot:
        user, device = self._rng.choice(list(self._targets.users.items()))
        return Shot({"user": user}, [f"user:{user}", device])

    def _to_user_once(self) -> Shot:
        to, targets, *_ = self._to_user()
        return Shot({**to, "once": True}, targets, once=True)

    def _to_own_topic(self) -> Shot:
        device = self._rng.choice(self._targets.devices)
        topic = f"{device}.{self._rng.randrange(_OWN_TOPICS)}"
        return Shot({"topic": topic}, [device], subscribe={"topics": [topic], "device": device})

    def _taken_back(self) -> Shot:
        way = self._rng.choice([self._to_some, self._to_topic, self._to_user])
        return way()._replace(cancelled=True)
