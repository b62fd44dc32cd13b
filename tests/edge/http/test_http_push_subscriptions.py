"""Browsers over HTTP: the key, subscriptions, what is too large to be handed over."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager

import pytest

from tests.edge.http.conftest import PAGE
from tests.push.desks import make_bench
from tests.push.webpush.browsers import Browser, push_service
from tests.push.webpush.shops import shop as web_shop

PATH = "/v1/push/subscriptions"


@pytest.fixture
def shop(serve):
    """An open app on an edge, with Web Push."""

    @asynccontextmanager
    async def opening(**options):
        async with web_shop(**options) as own, serve(push=own.desk) as service:
            own.service = service
            yield own

    return opening


async def ticket_of(own, device="laptop"):
    body = {"app": own.shop.key, "device": device}
    said = (await own.service.post("/v1/push/devices", body)).json()
    return {"client": said["client"], "token": said["token"]}


async def remove(own, body):
    return await own.service.client.request("DELETE", PATH, json=body)


def test_a_browser_subscribes_gets_a_note_fetches_another_and_leaves(shop, run):
    async def main():
        async with push_service() as push, shop() as own:
            key = (await own.service.get("/v1/push/vapid")).json()
            assert len(base64.urlsafe_b64decode(key["key"] + "=")) == 65
            ticket, browser = await ticket_of(own), push.browser()
            body = {**ticket, "subscription": browser.to_json()}
            kept = await own.service.post(PATH, body, headers={"origin": PAGE})
            assert kept.json() == {"ok": True, "client": ticket["client"]}
            assert kept.headers["access-control-allow-origin"] == PAGE
            sent = await own.send(own.shop, b"x" * 9000, clients=[ticket["client"]])
            (request,) = await push.requested(1)
            assert browser.read(request)["id"] == sent.note
            assert request.claims(push.origin)["k"] == key["key"]
            fetched = await own.service.post("/v1/push/fetch", {**ticket, "note": sent.note})
            assert base64.b64decode(fetched.json()["data64"]) == b"x" * 9000
            assert (await remove(own, ticket)).json() == {"ok": True, "removed": True}
            assert (await remove(own, ticket)).json() == {"ok": True, "removed": False}

    run(main)


def test_a_token_of_another_client_or_none_opens_nothing(shop, run):
    async def main():
        async with push_service() as push, shop() as own:
            mine, other = await ticket_of(own, "mine"), await ticket_of(own, "other")
            subscription = push.browser().to_json()
            for token in (other["token"], "x"):
                forged = {"client": mine["client"], "token": token}
                answers = [
                    await own.service.post(PATH, {**forged, "subscription": subscription}),
                    await remove(own, forged),
                    await own.service.post("/v1/push/fetch", {**forged, "note": "p1"}),
                ]
                assert [answer.status_code for answer in answers] == [401] * 3
            assert not await own.has_subscription(mine["client"])

    run(main)


def test_a_note_of_another_client_is_not_fetched(shop, run):
    async def main():
        async with shop() as own:
            mine, other = await ticket_of(own, "mine"), await ticket_of(own, "other")
            sent = await own.send(own.shop, clients=[other["client"]])
            for note in (sent.note, "p01000000000000a", "x"):
                answer = await own.service.post("/v1/push/fetch", {**mine, "note": note})
                assert answer.status_code == 404

    run(main)


def test_what_is_wrong_with_a_subscription_is_named(shop, run):
    async def main():
        async with shop(allow_private=False) as own:
            ticket = await ticket_of(own)
            for endpoint in ("http://push.example/x", "https://127.0.0.1/x", "x"):
                body = {**ticket, "subscription": Browser(endpoint).to_json()}
                answer = await own.service.post(PATH, body)
                assert answer.status_code == 400
                assert "endpoint" in answer.json()["reason"]
            good = Browser("https://push.example/x").to_json()
            for keys, field in (({"p256dh": "x", "auth": "x"}, "p256dh"), ({}, "keys")):
                body = {**ticket, "subscription": {**good, "keys": keys}}
                answer = await own.service.post(PATH, body)
                assert answer.status_code == 400
                assert field in answer.json()["reason"]
            large = {**ticket, "subscription": {**good, "more": "x" * 9000}}
            assert (await own.service.post(PATH, large)).status_code == 413
            assert (await own.service.post(PATH, {**ticket, "subscription": good})).json()["ok"]

    run(main)


def test_without_web_push_it_is_said_so(serve, run):
    async def main():
        bench = await make_bench()
        async with serve(push=bench.desk) as service:
            answer = await service.get("/v1/push/vapid")
            assert answer.status_code == 404
            assert "switched off" in answer.json()["reason"]
        await bench.states.close()

    run(main)
