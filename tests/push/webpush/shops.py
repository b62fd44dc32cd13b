"""An app whose devices are browsers: a desk with Web Push, on states in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random

from chappe.events.pushrecorder import PushRecorder
from chappe.ids import PrefixedIds
from chappe.push.admin.desk import PushDesk
from chappe.push.identity import load_identity
from chappe.push.state.sqlite import SqlitePlace
from chappe.push.webpush.opening import open_webpush
from chappe.push.webpush.options import WebPushOptions
from tests.push.desks import ENTROPY, SEAL, Bench
from tests.push.recording import HandClock, RecordingComets

QUICK = {"allow_private": True, "timeout_s": 5.0, "retry_first_s": 0.01, "retry_most_s": 0.05}


class Shop(Bench):
    """A bench whose provider is Web Push, and an app on it."""

    def __init__(self, states, identity, clock, webpush) -> None:
        super().__init__(states, identity, RecordingComets(1), clock, None)
        self.webpush = webpush
        self.desk = PushDesk(
            states,
            self.comets,
            SEAL,
            identity,
            ids=PrefixedIds(1, clock.wall_ms),
            clock=clock,
            entropy=ENTROPY,
            recorder=PushRecorder(self.tells),
            webpush=webpush,
        )

    async def subscribe(self, browser, device="laptop") -> str:
        """The client of a browser that has subscribed."""
        ticket = await self.desk.tokens.give(self.shop, device)
        said = browser.to_json()
        await self.desk.subscriptions.subscribe(
            ticket.client, ticket.token, said["endpoint"], **said["keys"]
        )
        self.token = ticket.token
        return ticket.client

    async def has_subscription(self, client) -> bool:
        return bool(await self.states.user.bridges([client], "webpush"))

    async def told(self, outcome, count=1) -> None:
        """Wait until so many notes have come to an outcome, and been told of."""
        async with asyncio.timeout(20):
            while self.webpush.counts().get(outcome, 0) < count:
                await asyncio.sleep(0.002)
        rows = [row for row in self.tells.of("push_bridged") if row["reason"] == outcome]
        assert outcome == "later" or len(rows) == count, rows


@asynccontextmanager
async def shop(started=True, **options):
    clock = HandClock()
    states = SqlitePlace(None, clock.wall_ms).states
    identity = await load_identity(states.meta, SEAL, ENTROPY)
    tells = PushRecorder(None)
    webpush = await open_webpush(
        states,
        SEAL,
        clock=clock,
        entropy=ENTROPY,
        rng=Random("retries"),
        recorder=tells,
        options=WebPushOptions(**QUICK | options),
    )
    bench = Shop(states, identity, clock, webpush)
    tells._recorder = bench.tells
    bench.shop = await bench.app()
    if started:
        webpush.start()
    try:
        yield bench
    finally:
        await webpush.close()
        await states.close()
