"""Health, metrics, status, sessions and revocation."""

from __future__ import annotations

import asyncio
import time

from prometheus_client.parser import text_string_to_metric_families

from chappe.errors import CloseCode


async def metrics_of(service):
    answer = await service.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_a_draining_node_lives_but_is_not_ready(serve, run):
    async def main():
        async with serve() as service:
            assert (await service.get("/readyz")).status_code == 200
            service.hub.drain("going", 0)
            refused = await service.get("/readyz")
            assert refused.status_code == 503
            assert "retry-after" in refused.headers
            assert (await service.get("/healthz")).json() == {"ok": True}
            assert (await metrics_of(service))[("chappe_draining",)] == 1

    run(main)


def test_a_node_that_has_failed_in_part_is_neither_ready_nor_well_and_says_in_which(serve, run):
    async def main():
        failures = []
        async with serve(failures=failures) as service:
            assert (await service.get("/readyz")).status_code == 200
            failures += [f"part {n}" for n in range(10)]
            refused = await service.get("/readyz")
            assert refused.status_code == 503
            reason = refused.json()["reason"]
            assert "part 0, part 1" in reason
            assert reason.endswith("part 7 and 2 more")
            assert (await service.client.head("/readyz")).status_code == 503
            assert (await service.client.head("/healthz")).status_code == 503
            unwell = await service.get("/healthz")
            assert (unwell.status_code, unwell.json()["reason"]) == (503, reason)

    run(main)


def test_metrics_count_what_happened(serve, run):
    async def main():
        async with serve() as service:
            first = await service.open_poll("user:bob", "topic:t")
            await service.open_poll("user:eve", "topic:t")
            await service.post("/v1/publish", {"to": "topic:t", "data": 1})
            await service.post("/v1/send", {"to": "user:bob", "data": 1})
            await service.post("/v1/send", {"to": "user:no", "data": 1})
            await service.client.post("/v1/send", content=b"{")
            await service.poll(first)
            await service.client.delete(f"/v1/poll/{first}")
            seen = await metrics_of(service)
            assert seen["chappe_sessions", "poll"] == 1
            assert seen["chappe_sessions_opened_total", "poll"] == 2
            assert seen["chappe_sessions_opened_total", "http"] == 3
            assert seen["chappe_sessions_closed_total", str(int(CloseCode.NORMAL))] == 4
            assert seen["chappe_messages_total", "publish"] == 1
            assert seen["chappe_deliveries_total", "publish"] == 2
            assert seen["chappe_messages_total", "send"] == 1
            assert seen["chappe_refusals_total", "unreachable"] == 1
            assert seen["chappe_refusals_total", "protocol"] == 1
            assert (seen[("chappe_apps",)], seen[("chappe_topics",)]) == (1, 1)
            assert seen[("chappe_endpoints",)] == 1
            assert seen[("chappe_outbox_held_bytes",)] > 0
            assert seen[("chappe_outbox_held_sessions",)] == 1
            assert seen[("chappe_accepted_total",)] >= 1
            assert seen[("chappe_accept_pauses_total",)] == 0
            assert seen[("chappe_http_connections",)] >= 1

    run(main)


def test_status_tells_how_the_node_is_doing(serve, run):
    async def main():
        async with serve() as service:
            await service.open_poll("user:bob", "topic:t")
            status = (await service.get("/v1/status")).json()
            assert status["sessions"] == {"poll": 1}
            assert (status["apps"], status["topics"], status["endpoints"]) == (1, 1, 1)
            assert status["addresses"] == {"http": "here"}
            assert status["counters"]["opened"] == {"poll": 1}
            assert status["draining"] is False
            assert status["uptime_s"] >= 0
            assert status["version"]

    run(main)


def test_sessions_are_listed_by_page_and_without_their_ids(serve, run):
    async def main():
        async with serve() as service:
            ids = [await service.open_poll(f"user:u{n}") for n in range(5)]
            await service.post("/v1/poll", {"as": "user:other", "app": "other"})
            seen, start = [], 0
            while start is not None:
                answer = await service.get(f"/v1/sessions?limit=2&start={start}")
                page = answer.json()
                assert len(page["sessions"]) <= 2
                assert not any(session in answer.text for session in ids)
                seen += [session["address"] for session in page["sessions"]]
                start = page["next"]
            assert seen == [f"user:u{n}" for n in range(5)]
            for query in ("limit=0", "limit=1001", "start=-1", "limit=x"):
                wrong = await service.get(f"/v1/sessions?{query}")
                assert wrong.status_code == 400
                assert query.partition("=")[0] in wrong.json()["reason"]

    run(main)


def test_administration_asks_for_everything(serve, run, bearer):
    async def main():
        async with serve(dev=False) as service:
            body = {"jti": "x", "exp": 1}
            for claims in ({}, {"admin": ["topic:*"]}, {"send": ["*"]}):
                token = bearer("user:al", **claims)
                for path in ("/v1/status", "/v1/sessions"):
                    assert (await service.get(path, headers=token)).status_code == 403
                refused = await service.post("/v1/tokens/revoke", body, headers=token)
                assert refused.status_code == 403
            token = bearer("user:root", admin=["*"])
            assert (await service.get("/v1/status", headers=token)).status_code == 200
            assert (await service.get("/v1/sessions", headers=token)).status_code == 200

    run(main)


def test_revoking_a_token_closes_its_sessions_and_refuses_it(serve, run, bearer):
    async def main():
        async with serve(dev=False) as service:
            revoked, good = bearer("user:al", jti="one"), bearer("user:al", jti="two")
            opened = await service.post("/v1/poll", {}, headers=revoked)
            session = opened.json()["session"]
            kept = (await service.post("/v1/poll", {}, headers=good)).json()["session"]
            polling = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            answer = await service.post(
                "/v1/tokens/revoke",
                {"jti": "one", "exp": time.time() + 600},
                headers=bearer("user:root", admin=["*"]),
            )
            assert answer.json() == {"ok": True, "closed": 1}
            async with asyncio.timeout(5):
                last = (await polling)["messages"][-1]
            assert (last["op"], last["code"]) == ("closed", CloseCode.REVOKED)
            assert (await service.post("/v1/poll", {}, headers=revoked)).status_code == 401
            assert list(service.hub.sessions) == [kept]

    run(main)
