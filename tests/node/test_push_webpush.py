"""A node that hands notes to the push services of browsers, from its options on."""

from __future__ import annotations

from pathlib import Path

import httpx

from chappe.node.options import PushOptions
from chappe.push.webpush.options import WebPushOptions
from tests.loop import on_loop
from tests.node.running import running
from tests.push.webpush.browsers import push_service

PUSH = PushOptions(webpush=WebPushOptions(enabled=True, allow_private=True))
# Of the app's server; an administrator names the app instead of signing.
APP = "x-chappe-app"


async def asked(http: httpx.AsyncClient, path: str, body: dict) -> dict:
    answer = await http.post(f"/v1/push{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@on_loop
async def test_a_browser_of_a_node_gets_its_notes_and_the_key_stays_the_same(tmp_path: Path):
    async with push_service() as service:
        browser = service.browser()
        keys = []
        async with (
            running(tmp_path, push=PUSH, comet_port=0) as node,
            httpx.AsyncClient(base_url=node.addresses()["http"]) as http,
        ):
            keys.append((await http.get("/v1/push/vapid")).json()["key"])
            app = (await asked(http, "/apps", {"as": "user:a", "name": "shop", "open": True}))[
                "key"
            ]
            ticket = await asked(http, "/devices", {"app": app, "device": "laptop"})
            own = {"client": ticket["client"], "token": ticket["token"]}
            await asked(http, "/subscriptions", {**own, "subscription": browser.to_json()})
        async with (
            running(tmp_path, push=PUSH, comet_port=0) as node,
            httpx.AsyncClient(base_url=node.addresses()["http"]) as http,
        ):
            keys.append((await http.get("/v1/push/vapid")).json()["key"])
            http.headers[APP] = app
            sent = await asked(http, "/send", {"device": "laptop", "data": {"n": 1}})
            (request,) = await service.requested(1)
            assert browser.read(request)["data"] == {"n": 1}
            assert browser.read(request)["id"] == sent["note"]
            assert request.claims(service.origin)["k"] == keys[0] == keys[1]


@on_loop
async def test_a_node_does_so_only_if_it_is_told_to(tmp_path: Path):
    async with (
        running(tmp_path, comet_port=0) as node,
        httpx.AsyncClient(base_url=node.addresses()["http"]) as http,
    ):
        answer = await http.get("/v1/push/vapid")
        assert answer.status_code == 404
        assert "switched off" in answer.json()["reason"]
