"""Which pages may use the API, and what every response carries."""

from __future__ import annotations

import pytest

from tests.edge.http.conftest import PAGE


def test_a_foreign_page_is_refused_on_every_route_of_the_api(serve, run):
    async def main():
        async with serve() as service:
            foreign = {"origin": "https://evil.example"}
            for method, path in (
                ("POST", "/v1/send"),
                ("POST", "/v1/publish"),
                ("GET", "/v1/presence?to=user:a"),
                ("GET", "/v1/status"),
                ("GET", "/v1/sessions"),
                ("POST", "/v1/tokens/revoke"),
                ("POST", "/v1/poll"),
                ("POST", "/v1/poll/x/ops"),
                ("DELETE", "/v1/poll/x"),
                ("GET", "/v1/events"),
                ("OPTIONS", "/v1/send"),
                ("GET", "/v1/nothing"),
            ):
                answer = await service.client.request(method, path, headers=foreign)
                assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), path
                assert "access-control-allow-origin" not in answer.headers
            assert not service.hub.sessions

    run(main)


def test_an_allowed_page_is_named_in_the_answer_and_no_other(serve, run):
    async def main():
        async with serve() as service:
            body = {"to": "topic:t", "data": 1}
            answer = await service.post("/v1/publish", body, headers={"origin": PAGE})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert "origin" in answer.headers["vary"].lower()
            assert "access-control-allow-credentials" not in answer.headers
            # Errors as well, or the page could not read them.
            wrong = await service.post("/v1/publish", {}, headers={"origin": PAGE})
            assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (400, PAGE)
            plain = await service.post("/v1/publish", body)
            assert "access-control-allow-origin" not in plain.headers
            assert "origin" in plain.headers["vary"].lower()

    run(main)


def test_a_preflight_is_answered(serve, run):
    async def main():
        async with serve(dev=False) as service:
            headers = {
                "origin": PAGE,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization",
            }
            answer = await service.client.options("/v1/send", headers=headers)
            assert answer.status_code == 204
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert "POST" in answer.headers["access-control-allow-methods"]
            assert "authorization" in answer.headers["access-control-allow-headers"]

    run(main)


@pytest.mark.parametrize(
    "headers",
    [
        # A name that was made to point at this machine: the page's origin is then its own.
        {"host": "evil.example"},
        {"host": "evil.example:7401"},
        # An image's or a script's request has no Origin.
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_development_is_closed_to_pages_that_hide_their_origin(serve, run, headers):
    async def main():
        async with serve() as service:
            answer = await service.get("/v1/status", headers=headers)
            assert answer.status_code == 403
            assert (await service.get("/v1/status")).status_code == 200

    run(main)


def test_every_response_forbids_sniffing_and_the_api_storing(serve, run):
    async def main():
        async with serve() as service:
            for path in ("/healthz", "/metrics", "/openapi.json", "/nothing", "/v1/status"):
                headers = (await service.get(path)).headers
                assert headers["x-content-type-options"] == "nosniff"
                assert "set-cookie" not in headers
                assert "server" not in headers
                assert "date" in headers
                assert (headers.get("cache-control") == "no-store") == path.startswith("/v1")

    run(main)


def test_documentation_pages_are_off_and_unknown_paths_answer_in_json(serve, run):
    async def main():
        async with serve() as service:
            for path in ("/docs", "/redoc", "/", "/v1/send/", "/v1/poll/a/b/c"):
                answer = await service.get(path)
                assert answer.status_code == 404, path
                assert answer.json()["ok"] is False
            wrong = await service.get("/v1/send")
            assert (wrong.status_code, wrong.json()["error"]) == (405, "protocol")

    run(main)


@pytest.mark.parametrize(
    ("method", "target", "part"),
    [
        ("PUT", "/v1/queues/%ff", "path"),
        ("PUT", "/v1/topics/a%C3", "path"),
        ("GET", "/%fe", "path"),
        ("GET", "/v1/presence?to=user:%ff", "query"),
    ],
)
def test_a_target_that_is_not_utf_8_is_refused(serve, run, method, target, part):
    async def main():
        async with serve() as service:
            wrong = await service.client.request(method, target, content=b"{}")
            refused = {"ok": False, "error": "protocol", "reason": f"{part}: not UTF-8"}
            assert (wrong.status_code, wrong.json()) == (400, refused)
            # A page that may use the API can read why.
            wrong = await service.client.request(method, target, headers={"origin": PAGE})
            assert wrong.headers.get("access-control-allow-origin") == (
                PAGE if target.startswith("/v1/") else None
            )
            right = await service.get("/v1/presence?to=user:%C3%A9")
            assert right.status_code == 200

    run(main)
