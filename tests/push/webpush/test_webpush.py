"""Web Push from a send to a browser, over real sockets; and whatever a push service may answer."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
import structlog

from chappe.errors import StorageError
from chappe.push.admin.clients import Which
from chappe.push.webpush.line import REST_AFTER
from chappe.push.webpush.options import WebPushOptions
from tests.loop import on_loop
from tests.push.webpush.browsers import answer, push_service
from tests.push.webpush.shops import shop


@on_loop
async def test_a_note_comes_to_a_browser_that_is_not_connected_encrypted_and_signed():
    async with push_service() as service, shop(contact="mailto:ops@example.com") as own:
        browser = service.browser()
        client = await own.subscribe(browser)
        sent = await own.send(
            own.shop,
            b'{"title":"hi"}',
            clients=[client],
            order={"type": 7, "priority": 2, "collapse": "score", "ttl_s": 600},
        )
        assert sent.offline == 1
        (request,) = await service.requested(1)
        assert browser.read(request) == {
            "id": sent.note,
            "job": sent.job,
            "type": 7,
            "data": {"title": "hi"},
        }
        assert request.target == "/push/a"
        assert request.claims(service.origin) == {
            "aud": service.origin,
            "exp": own.clock.wall_ms() // 1000 + 12 * 3600,
            "sub": "mailto:ops@example.com",
            "k": own.desk.subscriptions.public_text,
        }
        headers = request.headers
        assert (headers["ttl"], headers["urgency"]) == ("600", "high")
        assert len(headers["topic"]) == 32
        assert (headers["content-encoding"], len(request.body) <= 4096) == ("aes128gcm", True)
        await own.told("handed")
        (row,) = own.tells.of("push_bridged")
        assert (row["label"], row["job"], row["client"]) == (sent.note, sent.job, client)
        # It waits all the same: a browser may be closed for good.
        assert await own.waiting(client) == [sent.note]


@on_loop
async def test_each_message_has_a_key_and_a_salt_of_its_own():
    async with push_service() as service, shop() as own:
        client = await own.subscribe(service.browser())
        for _ in range(3):
            await own.send(own.shop, clients=[client])
        bodies = [request.body for request in await service.requested(3)]
        assert len({body[:16] for body in bodies}) == 3
        assert len({body[21:86] for body in bodies}) == 3


@on_loop
async def test_only_clients_that_are_offline_and_have_subscribed_get_it_that_way():
    async with push_service() as service, shop() as own:
        there = await own.subscribe(service.browser("there"), "there")
        away = await own.subscribe(service.browser("away"), "away")
        without = await own.client(own.shop, "without")
        await own.states.route.move({there: 1})
        own.comets.here[1].add(there)
        sent = await own.send(own.shop, clients=[there, away, without])
        assert (sent.sent, sent.offline) == (1, 2)
        await own.told("handed")
        assert [request.target for request in service.requests] == ["/push/away"]
        assert own.webpush.waiting == 0


@on_loop
async def test_a_note_too_large_is_named_and_fetched():
    async with push_service() as service, shop() as own:
        browser = service.browser()
        client = await own.subscribe(browser)
        sent = await own.send(own.shop, b"\xff" * 50_000, clients=[client])
        (request,) = await service.requested(1)
        assert browser.read(request) == {"id": sent.note, "job": sent.job, "type": 0}
        note = await own.desk.subscriptions.fetch(client, own.token, sent.note)
        assert note.content == b"\xff" * 50_000


@pytest.mark.parametrize("status", [200, 201, 202, 204])
@on_loop
async def test_what_is_accepted_is_handed(status):
    async with push_service() as service, shop() as own:
        service.respond = lambda request: answer(status)
        client = await own.subscribe(service.browser())
        await own.send(own.shop, clients=[client])
        await own.told("handed")
        assert await own.has_subscription(client)


@pytest.mark.parametrize("status", [404, 410])
@on_loop
async def test_a_subscription_that_is_gone_is_forgotten(status):
    async with push_service() as service, shop() as own:
        service.respond = lambda request: answer(status)
        client = await own.subscribe(service.browser())
        sent = await own.send(own.shop, clients=[client])
        await own.told("gone")
        assert not await own.has_subscription(client)
        assert await own.waiting(client) == [sent.note]
        await own.send(own.shop, clients=[client])
        await asyncio.sleep(0.05)
        assert len(service.requests) == 1


@on_loop
async def test_a_new_subscription_survives_the_end_of_the_old_one():
    async with push_service() as service, shop() as own:
        client = await own.subscribe(service.browser("old"))

        async def respond(request):
            # The browser subscribes anew while the push service says that the old one is gone.
            if request.target == "/push/old":
                await own.subscribe(service.browser("new"))
                return answer(410)
            return answer(201)

        service.respond = respond
        await own.send(own.shop, clients=[client])
        await own.told("gone")
        await own.send(own.shop, clients=[client])
        await own.told("handed")
        assert [request.target for request in service.requests] == ["/push/old", "/push/new"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(413, "too_large"), (400, "refused"), (401, "refused"), (403, "refused"), (301, "refused")],
)
@on_loop
async def test_what_no_attempt_can_mend_is_said_and_not_tried_again(status, outcome):
    async with push_service() as service, shop() as own:
        service.respond = lambda request: answer(status, f"Location: {service.origin}/elsewhere")
        client = await own.subscribe(service.browser())
        with structlog.testing.capture_logs() as logged:
            await own.send(own.shop, clients=[client])
            await own.told(outcome)
        (said,) = [line for line in logged if line["log_level"] == "warning"]
        assert (said["outcome"], said["cause"]) == (outcome, str(status))
        await asyncio.sleep(0.1)
        assert len(service.requests) == 1
        assert await own.has_subscription(client)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
@on_loop
async def test_what_may_work_later_is_tried_again(status):
    async with push_service() as service, shop() as own:
        said = iter([answer(status), answer(status), answer(201)])
        service.respond = lambda request: next(said)
        browser = service.browser()
        client = await own.subscribe(browser)
        await own.send(own.shop, clients=[client])
        await own.told("handed")
        assert own.webpush.counts() == {"later": 2, "handed": 1}
        assert len({browser.read(request)["id"] for request in service.requests}) == 1


@on_loop
async def test_a_push_service_is_not_asked_again_before_it_wants_to():
    async with push_service() as service, shop(retry_most_s=60.0) as own:
        loop, times = asyncio.get_running_loop(), []
        said = iter([answer(429, "Retry-After: 1"), answer(201)])

        def respond(request):
            times.append(loop.time())
            return next(said)

        service.respond = respond
        client = await own.subscribe(service.browser())
        await own.send(own.shop, clients=[client])
        await own.told("handed")
        assert times[1] - times[0] >= 1.0


@on_loop
async def test_attempts_end():
    async with push_service() as service, shop(attempts_max=4) as own:
        service.respond = lambda request: answer(503)
        client = await own.subscribe(service.browser())
        sent = await own.send(own.shop, clients=[client])
        await own.told("gave_up")
        assert len(service.requests) == 4
        assert own.webpush.waiting == 0
        assert await own.waiting(client) == [sent.note]


@on_loop
async def test_a_note_is_not_kept_for_an_attempt_after_its_life():
    async with push_service() as service, shop(retry_most_s=3600.0) as own:
        service.respond = lambda request: answer(503, "Retry-After: 61")
        client = await own.subscribe(service.browser())
        await own.send(own.shop, clients=[client], order={"ttl_s": 60})
        await own.told("gave_up")
        assert len(service.requests) == 1


@pytest.mark.parametrize("how", ["acknowledged", "cancelled", "expired"])
@on_loop
async def test_what_waits_no_more_is_not_tried_again(how):
    async with push_service() as service, shop(retry_most_s=60.0) as own:
        service.respond = lambda request: answer(503, "Retry-After: 1")
        client = await own.subscribe(service.browser())
        sent = await own.send(own.shop, clients=[client])
        await own.told("later")
        if how == "acknowledged":
            await own.states.message.settle({client: [sent.note]})
        elif how == "cancelled":
            await own.desk.notes.cancel(own.shop, sent.note)
        else:
            own.clock.pass_s(2 * 24 * 3600)
        await own.told("needless")
        assert len(service.requests) == 1


@on_loop
async def test_what_is_taken_back_before_its_turn_is_not_sent():
    async with push_service() as service, shop(started=False) as own:
        client = await own.subscribe(service.browser())
        sent = await own.send(own.shop, clients=[client])
        other = await own.send(own.shop, clients=[client])
        await own.desk.notes.cancel(own.shop, sent.note)
        own.webpush.start()
        await own.told("handed")
        (row,) = own.tells.of("push_bridged")
        assert row["label"] == other.note
        assert len(service.requests) == 1


@on_loop
async def test_an_endpoint_that_is_down_and_one_that_never_answers_keep_nobody_else_waiting():
    async with (
        push_service() as service,
        push_service() as silent,
        # Fewer attempts at once than there are for the one that never answers.
        shop(concurrency_max=8, host_concurrency_max=6, timeout_s=0.5) as own,
    ):
        silent.respond = lambda request: None
        stuck = silent.browser()
        stuck.endpoint = stuck.endpoint.replace("127.0.0.1", "localhost")
        clients = [await own.subscribe(stuck, f"stuck{n}") for n in range(20)]
        well = await own.subscribe(service.browser(), "well")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await own.send(own.shop, clients=[*clients, well])
        await service.requested(1)
        assert loop.time() - began < 0.4


@on_loop
async def test_an_app_whose_hosts_are_dead_keeps_no_other_app_waiting():
    async with (
        push_service() as service,
        push_service() as silent,
        shop(concurrency_max=4, host_concurrency_max=2, timeout_s=0.5) as own,
    ):
        silent.respond = lambda request: None
        mine, own.shop = own.shop, await own.app("strangers", sends_per_s=0)
        dead = []
        for host in ("localhost", *(f"127.0.0.{n}" for n in range(2, 10))):
            stuck = silent.browser()
            stuck.endpoint = stuck.endpoint.replace("127.0.0.1", host)
            dead += [await own.subscribe(stuck, f"{host}-{n}") for n in range(30)]
        for _ in range(3):
            await own.send(own.shop, clients=dead)
        own.shop = mine
        well = await own.subscribe(service.browser(), "well")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await own.send(mine, clients=[well])
        await service.requested(1)
        # As long as an attempt may take, and not as long as all of theirs.
        assert loop.time() - began < 2.0


@on_loop
async def test_what_nobody_thought_of_is_told_and_the_next_note_goes_out(monkeypatch):
    async with push_service() as service, shop() as own:
        client = await own.subscribe(service.browser())
        carry = own.webpush._courier.carry

        async def fail(parcel):
            raise ValueError(parcel.subscription.endpoint)

        monkeypatch.setattr(own.webpush._courier, "carry", fail)
        await own.send(own.shop, clients=[client])
        await own.told("gave_up")
        monkeypatch.setattr(own.webpush._courier, "carry", carry)
        await own.send(own.shop, clients=[client])
        await own.told("handed")
        assert own.webpush.waiting == 0


@on_loop
async def test_a_host_that_fails_time_after_time_is_left_alone():
    async with push_service() as service, shop(concurrency_max=1, host_concurrency_max=1) as own:
        service.respond = lambda request: answer(503)
        browser = service.browser()
        clients = [await own.subscribe(browser, f"d{n}") for n in range(2 * REST_AFTER)]
        await own.send(own.shop, clients=clients)
        await service.requested(REST_AFTER)
        await asyncio.sleep(0.2)
        assert len(service.requests) == REST_AFTER
        assert own.webpush.waiting == len(clients)


@on_loop
async def test_no_more_is_taken_than_there_is_room_for_and_the_rest_is_told():
    async with push_service() as service, shop(started=False, queue_max=6) as own:
        browser = service.browser()
        clients = [await own.subscribe(browser, f"d{n}") for n in range(5)]
        sent = await own.send(own.shop, clients=clients)
        assert sent.offline == 5
        await own.told("crowded_out", 2)
        assert own.webpush.waiting == 3
        own.webpush.start()
        await own.told("handed", 3)
        assert len(service.requests) == 3
        assert [len(await own.waiting(client)) for client in clients] == [1] * 5


@on_loop
async def test_many_go_out_together_and_no_more_than_may():
    async with push_service() as service, shop(concurrency_max=4, host_concurrency_max=4) as own:
        browser = service.browser()
        clients = [await own.subscribe(browser, f"d{n}") for n in range(700)]
        await own.send(own.shop, clients=clients)
        await own.told("handed", 700)
        assert service.connections <= 4
        assert own.webpush.waiting == 0


@on_loop
async def test_an_endpoint_that_leads_into_a_private_network_by_now_is_blocked():
    async with push_service() as service, shop() as own:
        client = await own.subscribe(service.browser())
        own.webpush._courier._services = type(own.webpush._courier._services)(
            WebPushOptions(timeout_s=5)
        )
        await own.send(own.shop, clients=[client])
        await own.told("blocked")
        assert not service.connections


@on_loop
async def test_a_store_that_fails_is_told_and_the_next_note_goes_out(monkeypatch):
    async with push_service() as service, shop() as own:
        client = await own.subscribe(service.browser())
        bridges = own.states.user.bridges

        async def fail(clients, kind):
            raise StorageError("disk: full")

        monkeypatch.setattr(own.states.user, "bridges", fail)
        await own.send(own.shop, clients=[client])
        await own.told("unknown")
        monkeypatch.setattr(own.states.user, "bridges", bridges)
        await own.send(own.shop, clients=[client])
        await own.told("handed")


@on_loop
async def test_a_subscription_sealed_under_another_key_harms_nobody_else():
    async with push_service() as service, shop() as own:
        browser = service.browser()
        broken = await own.subscribe(browser, "broken")
        well = await own.subscribe(browser, "well")
        assert await own.states.user.put_bridge(broken, "webpush", b"x" * 80)
        await own.send(own.shop, clients=[broken, well])
        await own.told("handed")


@on_loop
async def test_neither_store_nor_logs_nor_events_know_where_and_with_which_keys(caplog, capsys):
    caplog.set_level(logging.DEBUG)
    async with push_service() as service, shop(attempts_max=2) as own:
        browser = service.browser("CANARY")
        client = await own.subscribe(browser)
        with structlog.testing.capture_logs() as logged:
            for status in (201, 413, 503, 410):
                service.respond = lambda request, status=status: answer(status)
                await own.send(own.shop, clients=[client])
                await own.told(
                    {413: "too_large", 503: "gave_up", 410: "gone"}.get(status, "handed")
                )
            await own.subscribe(browser)
            (stored,) = (await own.states.user.bridges([client], "webpush")).values()
        said = json.dumps(logged) + caplog.text + repr(own.tells.rows) + str(capsys.readouterr())
        token = service.requests[0].headers["authorization"].partition("t=")[2][:60]
        for secret in ("CANARY", browser.to_json()["keys"]["auth"], token):
            assert secret not in said
        assert b"CANARY" not in stored
        assert browser.auth not in stored


@on_loop
async def test_with_the_client_its_subscription_is_forgotten():
    async with push_service() as service, shop() as own:
        client = await own.subscribe(service.browser())
        await own.desk.clients.remove(own.shop.key, Which(client))
        assert not await own.has_subscription(client)


@on_loop
async def test_it_ends_at_once_whatever_is_under_way():
    async with push_service() as service, shop() as own:
        service.respond = lambda request: None
        client = await own.subscribe(service.browser())
        await own.send(own.shop, clients=[client])
        await service.requested(1)
        async with asyncio.timeout(2):
            await own.webpush.close()
        await own.send(own.shop, clients=[client])
        await own.told("crowded_out")
