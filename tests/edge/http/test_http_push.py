"""Push over HTTP: devices, app servers that sign, administrators."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager

import pytest

from chappe.errors import StorageError
from chappe.push.app import Limits
from tests.edge.http.conftest import PAGE
from tests.edge.http.signing import Signer
from tests.push.desks import make_bench

HOUR_S = 3600


class Shop:
    """An app's server, and the edge it asks."""

    def __init__(self, service, bench, app, secret) -> None:
        self.service, self.bench, self.app = service, bench, app
        self.signer = Signer(app.key, secret, bench.clock)

    async def post(self, path, body=None, **more):
        content = {} if body is None else {"json": body}
        return await self.service.client.post(
            f"/v1/push{path}", auth=self.signer, **content, **more
        )

    async def get(self, path, **query):
        return await self.service.client.get(f"/v1/push{path}", params=query, auth=self.signer)

    async def device(self, name):
        body = {"app": self.app.key, "device": name}
        answer = await self.service.post("/v1/push/devices", body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def shop(serve):
    """An open app on an edge with a desk."""

    @asynccontextmanager
    async def opening(*, dev=True, open=True, limits=None):
        bench = await make_bench()
        app, secret = await bench.desk.apps.create("shop", open=open, limits=limits or Limits())
        async with serve(push=bench.desk, dev=dev, tenants=("shop", "eve")) as service:
            yield Shop(service, bench, app, secret)
        await bench.states.close()

    return opening


def test_a_device_asks_and_its_user_is_sent_a_note(shop, run):  # P1, P8, P9
    async def main():
        async with shop() as own:
            ticket = await own.device("phone")
            assert ticket["ok"]
            assert ticket["comet"].endswith(":7403")
            bound = await own.post("/users/bind", {"user": "alice", "client": ticket["client"]})
            assert bound.json()["client"]["user"] == "alice"
            sent = await own.post("/send", {"user": "alice", "type": 3, "data": {"n": 1}})
            assert sent.status_code == 200, sent.text
            note = (await own.bench.states.message.bodies([sent.json()["note"]])).popitem()[1]
            assert (note.type, note.content, note.user) == (3, b'{"n":1}', "alice")
            job = (await own.get(f"/jobs/{sent.json()['job']}")).json()["job"]
            assert (job["aim"], job["target"], job["aimed"]) == ("user", "alice", 1)
            assert job["ratios"]["offline"] == 1.0
            clicks = [{"job": sent.json()["job"], "note": sent.json()["note"]}]
            click = {"client": ticket["client"], "token": ticket["token"], "clicks": clicks}
            clicked = await own.service.post("/v1/push/clicks", click)
            assert clicked.json() == {"ok": True, "counted": 1}
            wrong = await own.service.post("/v1/push/clicks", click | {"token": "x"})
            assert wrong.status_code == 401

    run(main)


def test_content_is_the_text_of_json_or_bytes(shop, run):
    async def main():
        async with shop() as own:
            await own.device("phone")
            bodies = own.bench.states.message.bodies
            raw = b'{"device":"phone","data":{"n":1.00000000000000000001}}'
            url = "/v1/push/send"
            sent = await own.service.client.post(url, content=raw, auth=own.signer)
            (note,) = (await bodies([sent.json()["note"]])).values()
            assert note.content == b'{"n":1.00000000000000000001}'
            binary = base64.b64encode(bytes(range(256))).decode()
            sent = await own.post("/send", {"device": "phone", "data64": binary})
            (note,) = (await bodies([sent.json()["note"]])).values()
            assert note.content == bytes(range(256))
            for wrong in ({"data64": "%"}, {}, {"data": 1, "data64": "MQ=="}):
                answer = await own.post("/send", {"device": "phone", **wrong})
                assert answer.status_code == 400
                assert "data" in answer.json()["reason"]

    run(main)


def test_who_is_missing_is_told_and_if_nobody_is_there_nothing_is_made(shop, run):  # P8
    async def main():
        async with shop() as own:
            await own.device("phone")
            sent = await own.post("/send", {"device": ["phone", "tablet"], "data": 1})
            assert sent.json()["missing"] == {"devices": ["tablet"]}
            for aim in ({"device": "tablet"}, {"user": ["al"]}, {"client": "c"}, {"topic": "t"}):
                answer = await own.post("/send", {**aim, "data": 1})
                assert answer.status_code == 404, answer.text
            assert len((await own.get("/jobs")).json()["jobs"]) == 1

    run(main)


def test_what_is_wrong_with_a_field_is_said_by_its_name(shop, run):
    async def main():
        async with shop() as own:
            await own.device("phone")
            for path, field, value, reason in (
                ("send", "priority", "urgent", "priority: must be one of low, normal, high"),
                ("send", "ttl_s", 0, "ttl_s: must be between 1 and 2419200"),
                ("tokens/revoke", "token", "", "token: must not be empty"),
            ):
                aim = {"device": "phone", "data": 1} if path == "send" else {}
                refused = await own.post(f"/{path}", {**aim, field: value})
                assert (refused.status_code, refused.json()["reason"]) == (400, reason)

    run(main)


def test_a_request_that_is_not_signed_right_is_refused_and_told_why(shop, run):  # P10
    async def main():
        async with shop(dev=False) as own:
            await own.device("phone")
            client, path, body = own.service.client, "/v1/push/send", b'{"device":"phone","data":1}'

            async def refused(headers, body=body, path=path):
                answer = await client.post(path, content=body, headers=headers)
                assert answer.status_code == 401, answer.text
                assert answer.json()["error"] == "forbidden"
                return answer.json()["reason"]

            good = own.signer.sign("POST", path, body)
            for header in good:
                left = {name: value for name, value in good.items() if name != header}
                assert header.lower() in await refused(left)
            assert "missing" in await refused({})
            assert "x-chappe-signature" in await refused(good, body=body + b" ")
            assert "x-chappe-signature" in await refused(good, path=path + "?x=1")
            stranger = Signer("0" * 20, "s", own.bench.clock)
            unknown = await refused(stranger.sign("POST", path, body))
            assert unknown == "x-chappe-app: no app has this key"
            thief = Signer(own.app.key, "another", own.bench.clock)
            assert "x-chappe-signature" in await refused(thief.sign("POST", path, body))
            assert not own.bench.comets.delivered
            # What was refused has not used up its nonce.
            assert (await client.post(path, content=body, headers=good)).status_code == 200
            assert "replay" in await refused(good)

    run(main)


@pytest.mark.parametrize("off_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_an_hour_off_is_told_the_servers_time(shop, run, off_s):  # P10
    async def main():
        async with shop() as own:
            headers = own.signer.sign("GET", "/v1/push/jobs", b"")
            own.bench.clock.pass_s(off_s)
            answer = await own.service.get("/v1/push/jobs", headers=headers)
            assert answer.status_code == 401
            assert str(own.bench.clock.ms) in answer.json()["reason"]

    run(main)


def test_a_request_is_remembered_for_as_long_as_it_would_be_taken(shop, run):  # P10
    async def main():
        async with shop() as own:
            headers = own.signer.sign("GET", "/v1/push/jobs", b"")
            for seconds, status in ((0, 200), (0, 401), (299, 401), (1, 401), (600, 401)):
                own.bench.clock.pass_s(seconds)
                await own.bench.states.sweep()
                answer = await own.service.get("/v1/push/jobs", headers=headers)
                assert answer.status_code == status, (seconds, answer.text)

    run(main)


def test_a_rotated_secret_and_a_switched_off_app_are_refused_at_once(shop, run):
    async def main():
        async with shop() as own:
            path = f"/v1/push/apps/{own.app.key}"
            made = (await own.service.client.post(f"{path}/secret")).json()
            assert (await own.get("/jobs")).status_code == 401
            own.signer.secret = made["secret"]
            assert (await own.get("/jobs")).status_code == 200
            await own.service.client.put(path, json={"enabled": False})
            assert (await own.get("/jobs")).status_code == 403
            body = {"app": own.app.key, "device": "phone"}
            assert (await own.service.post("/v1/push/devices", body)).status_code == 403
            assert (await own.service.client.delete(path)).json() == {"ok": True}
            assert (await own.get("/jobs")).status_code == 401
            assert (await own.service.post("/v1/push/devices", body)).status_code == 404

    run(main)


def test_a_closed_app_gives_tokens_to_its_own_server_only(shop, run):  # P10
    async def main():
        async with shop(open=False) as own:
            body = {"app": own.app.key, "device": "phone"}
            assert (await own.service.post("/v1/push/devices", body)).status_code == 403
            ticket = (await own.post("/tokens", {"device": "phone"})).json()
            assert ticket["client"].startswith("c")
            seen = (await own.get("/clients", device="phone")).json()
            assert (seen["client"]["client"], seen["comet"]) == (ticket["client"], None)
            revoked = await own.post("/tokens/revoke", {"token": ticket["token"]})
            assert revoked.json() == {"ok": True, "client": ticket["client"], "revoked": 1}
            again = await own.post("/tokens/revoke", {"token": ticket["token"]})
            assert again.status_code == 404
            both = {"token": "t", "client": ticket["client"]}
            assert (await own.post("/tokens/revoke", both)).status_code == 400

    run(main)


def test_too_many_sends_are_told_when_to_come_back(shop, run):
    async def main():
        async with shop(limits=Limits(sends_per_s=2)) as own:
            await own.device("phone")
            body = {"device": "phone", "data": 1}
            answers = [await own.post("/send", body) for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200, 200, 429]
            assert answers[2].headers["retry-after"] == "1"
            assert answers[2].json()["error"] == "overload"

    run(main)


def test_a_repeated_send_is_answered_as_it_was(shop, run):  # P9
    async def main():
        async with shop() as own:
            await own.device("phone")
            body = {"device": ["phone", "x"], "data": 1, "idempotency_key": "k"}
            first, second = await own.post("/send", body), await own.post("/send", body)
            assert first.json() == second.json()
            assert (await own.post("/send", body | {"data": 2})).status_code == 400

    run(main)


def test_notes_are_cancelled_and_replaced(shop, run):  # P7
    async def main():
        async with shop() as own:
            client = (await own.device("phone"))["client"]
            first = (await own.post("/send", {"device": "phone", "data": 1})).json()
            new = (await own.post(f"/notes/{first['note']}/replace", {"data": 2})).json()
            assert await own.bench.waiting(client) == [new["note"]]
            gone = await own.post(f"/notes/{first['note']}/replace", {"data": 2})
            assert gone.status_code == 404
            cancelled = await own.post(f"/jobs/{new['job']}/cancel")
            assert cancelled.json() == {"ok": True, "withdrawn": 1}
            assert (await own.post(f"/notes/{new['note']}/cancel")).status_code == 404
            assert await own.bench.waiting(client) == []
            assert (await own.get(f"/jobs/{new['job']}")).json()["job"]["cancelled_ms"] > 0

    run(main)


def test_topics_are_subscribed_to_listed_and_sent_to(shop, run):  # P8
    async def main():
        async with shop() as own:
            client = (await own.device("phone"))["client"]
            topics = ["news", "a/b", "ö"]
            body = {"device": "phone", "topics": topics}
            assert (await own.post("/topics/subscribe", body)).json()["client"] == client
            page = (await own.get("/topics", limit=2)).json()
            assert [each["topic"] for each in page["topics"]] == ["a/b", "news"]
            rest = (await own.get("/topics", after=page["next"])).json()
            assert [each["topic"] for each in rest["topics"]] == ["ö"]
            for topic in topics:
                shown = (await own.get(f"/topics/{topic}/clients")).json()
                assert (shown["topic"], shown["clients"]) == (topic, [client])
            sent = await own.post("/send", {"topic": "a/b", "data": 1})
            assert (sent.json()["aimed"], sent.json()["note"][0]) == (1, "m")
            assert (await own.post("/topics/unsubscribe", body)).status_code == 200
            assert (await own.get("/topics/news/clients")).json()["subscribers"] == 0

    run(main)


def test_a_store_that_fails_is_no_mistake_of_ours(shop, run):
    async def main():
        async with shop() as own:
            await own.device("phone")

            async def failing(*args, **kwargs):
                raise StorageError("redis at 10.1.2.3: gone")

            own.bench.states.message.put = failing
            answer = await own.post("/send", {"device": "phone", "data": 1})
            assert answer.status_code == 503
            assert answer.json()["outcome"] == "unknown"
            assert "10.1.2.3" not in answer.text

    run(main)


def test_bodies_are_bounded_before_they_are_read(shop, run):
    async def main():
        async with shop() as own:
            large = await own.post("/send", {"device": "phone", "data": "x" * 2_000_000})
            assert large.status_code == 413
            device = {"app": own.app.key, "device": "x" * 100_000}
            assert (await own.service.post("/v1/push/devices", device)).status_code == 413
            content = {"device": "phone", "data": "x" * 60_000}
            assert (await own.post("/send", content)).status_code == 400

    run(main)


def test_a_node_without_push_says_so(serve, run):
    async def main():
        async with serve() as service:
            for path in ("/v1/push/apps", "/v1/push/jobs"):
                answer = await service.get(path)
                assert answer.status_code == 404
                assert "push" in answer.json()["reason"]

    run(main)


def test_pages_get_tokens_but_cannot_sign(shop, run):
    async def main():
        async with shop(dev=False) as own:
            asks = {"origin": PAGE, "access-control-request-method": "POST"}
            preflight = await own.service.client.options("/v1/push/send", headers=asks)
            assert "x-chappe" not in preflight.headers["access-control-allow-headers"]
            body = {"app": own.app.key, "device": "phone"}
            page = {"headers": {"origin": PAGE}}
            taken = await own.service.post("/v1/push/devices", body, **page)
            assert taken.headers["access-control-allow-origin"] == PAGE
            foreign = {"headers": {"origin": "https://evil.example"}}
            refused = await own.service.post("/v1/push/devices", body, **foreign)
            assert refused.status_code == 403

    run(main)


def test_secrets_and_tokens_are_in_no_answer_but_the_first(shop, run):  # P10
    async def main():
        async with shop() as own:
            made = await own.service.post("/v1/push/apps", {"name": "other", "open": True})
            secret, key = made.json()["secret"], made.json()["key"]
            sealed = (await own.bench.states.meta.apps([key]))[key].sealed_secret.hex()
            for path in ("/v1/push/apps", f"/v1/push/apps/{key}"):
                text = (await own.service.get(path)).text
                assert key in text
                assert secret not in text
                assert sealed not in text

    run(main)


def test_administrators_see_their_own_app_and_operators_all(shop, run, bearer):  # P12
    async def main():
        async with shop(dev=False) as own:
            operator = {"headers": bearer("user:op", admin=["*"])}
            shopkeeper = {"headers": bearer("user:al", admin=["*"], app="shop", kid="shop")}
            other = {"headers": bearer("user:eve", admin=["*"], app="eve", kid="eve")}
            nobody = {"headers": bearer("user:bob")}
            get, path = own.service.get, f"/v1/push/apps/{own.app.key}"
            assert (await get(path)).status_code == 401
            assert (await get(path, **nobody)).status_code == 403
            assert (await get(path, **other)).status_code == 404
            assert (await get("/v1/push/apps", **other)).json()["apps"] == []
            for who in (operator, shopkeeper):
                assert (await get(path, **who)).json()["app"]["name"] == "shop"
                (app,) = (await get("/v1/push/apps", **who)).json()["apps"]
                assert app["key"] == own.app.key
            made = await own.service.post("/v1/push/apps", {"name": "third"}, **other)
            assert made.status_code == 403
            made = await own.service.post("/v1/push/apps", {"name": "eve"}, **other)
            assert made.status_code == 200
            assert len((await get("/v1/push/apps", **operator)).json()["apps"]) == 2
            again = await own.service.post("/v1/push/apps", {"name": "eve"}, **other)
            assert again.status_code == 400

    run(main)


def test_an_administrator_asks_for_an_app_with_a_token_in_place_of_a_signature(
    shop, run, bearer
):  # P12
    async def main():
        async with shop(dev=False) as own:
            await own.device("phone")
            named = {"x-chappe-app": own.app.key}
            body = {"device": "phone", "data": 1}

            async def status(headers):
                answer = await own.service.post("/v1/push/send", body, headers=headers)
                return answer.status_code

            assert await status(named | bearer("user:op", admin=["*"])) == 200
            assert (
                await status(named | bearer("user:al", admin=["*"], app="shop", kid="shop")) == 200
            )
            assert (
                await status(named | bearer("user:eve", admin=["*"], app="eve", kid="eve")) == 404
            )
            assert await status(named | bearer("user:bob")) == 403
            assert await status(named) == 401
            assert await status(bearer("user:op", admin=["*"])) == 401

    run(main)
