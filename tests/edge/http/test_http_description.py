"""`/openapi.json` says the truth: requests made from it are answered as it says."""

from __future__ import annotations

import asyncio
import os
import threading
from queue import Queue

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from chappe.clock import SystemClock
from chappe.push.app import Limits as AppLimits
from tests.edge.http.signing import SigningAuth
from tests.push.desks import make_bench

EXAMPLES_MAX = 100 if os.environ.get("CHAPPE_PROOF") == "full" else 6
PATHS = {
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/send",
    "/v1/publish",
    "/v1/presence",
    "/v1/services/{name}/request",
    "/v1/topics/{name}",
    "/v1/queues/{name}",
    "/v1/queues/{name}/send",
    "/v1/queues/{name}/fetch",
    "/v1/queues/{name}/ack",
    "/v1/queues/{name}/nack",
    "/v1/queues",
    "/v1/queues/{name}/cancel",
    "/v1/queues/{name}/consumers",
    "/v1/queues/{name}/consumers/{consumer}",
    "/v1/queues/{name}/groups/{group}",
    "/v1/queues/{name}/messages",
    "/v1/queues/{name}/delayed",
    "/v1/queues/{name}/dead",
    "/v1/queues/{name}/dead/{message}",
    "/v1/queues/{name}/dead/replay",
    "/v1/queues/{name}/dead/purge",
    "/v1/queues/{name}/export",
    "/v1/queues/{name}/import",
    "/v1/brokers/{broker}/promote",
    "/v1/avatars/{name}",
    "/v1/push/apps",
    "/v1/push/apps/{key}",
    "/v1/push/apps/{key}/secret",
    "/v1/push/clicks",
    "/v1/push/clients",
    "/v1/push/devices",
    "/v1/push/fetch",
    "/v1/push/jobs",
    "/v1/push/jobs/{job}",
    "/v1/push/jobs/{job}/cancel",
    "/v1/push/notes/{note}/cancel",
    "/v1/push/notes/{note}/replace",
    "/v1/push/send",
    "/v1/push/subscriptions",
    "/v1/push/tokens",
    "/v1/push/tokens/revoke",
    "/v1/push/topics",
    "/v1/push/topics/subscribe",
    "/v1/push/topics/unsubscribe",
    "/v1/push/topics/{topic}/clients",
    "/v1/push/users",
    "/v1/push/users/bind",
    "/v1/push/users/unbind",
    "/v1/push/vapid",
    "/v1/rooms/{name}/members",
    "/v1/rooms/links",
    "/v1/rooms/status",
    "/v1/rooms/weights",
    "/v1/status",
    "/v1/sessions",
    "/v1/nodes",
    "/v1/routes",
    "/v1/tokens/revoke",
    "/v1/poll",
    "/v1/poll/{session}/ops",
    "/v1/poll/{session}",
    "/v1/events",
}
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    """The body of an import: text, whatever it says."""
    return str(value).encode("utf-8", "replace")


@pytest.fixture
def port(serve, run):
    """The port of an edge that runs in a thread of its own."""
    ready: Queue = Queue()

    async def main():
        stop = asyncio.Event()
        bench = await make_bench(clock=SystemClock())
        app, secret = await bench.desk.apps.create("shop", open=True, limits=AppLimits())
        await bench.client(app, "phone")
        async with serve(push=bench.desk) as service:
            signs = SigningAuth(app.key, secret, SystemClock())
            ready.put((service.port, signs, asyncio.get_running_loop(), stop))
            await stop.wait()
        await bench.states.close()

    thread = threading.Thread(target=run, args=(main,), daemon=True)
    thread.start()
    number, signs, loop, stop = ready.get(timeout=30)
    yield number, signs
    loop.call_soon_threadsafe(stop.set)
    thread.join(timeout=30)
    assert not thread.is_alive(), "the edge did not end"


def _is_signed(operation):
    return any("signature" in way for way in operation.definition.raw.get("security", ()))


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_requests_made_from_the_description_are_answered_as_it_says(port, mode):
    number, signs = port
    base = f"http://127.0.0.1:{number}"
    schema = schemathesis.openapi.from_url(f"{base}/openapi.json")
    assert set(schema.raw_schema["paths"]) == PATHS
    # What is too long to be right may be too long to be read: 413 is a no as well.
    refusals = schema.config.checks.negative_data_rejection
    refusals.expected_statuses = [*refusals.expected_statuses, "413"]
    # A stream has no end to wait for; its own tests cover it.
    for result in schema.exclude(path="/v1/events").get_all_operations():
        operation = result.ok()
        if mode is GenerationMode.NEGATIVE and not operation.body and not operation.query:
            continue

        @settings(
            max_examples=EXAMPLES_MAX,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def conforms(case):
            auth = signs if _is_signed(case.operation) else None
            case.call_and_validate(base_url=base, checks=CHECKS, auth=auth)

        conforms()


def test_every_verdict_is_described(port):  # H5
    number, _ = port
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{number}/openapi.json").raw_schema
    for path in ("/v1/send", "/v1/poll", "/v1/poll/{session}/ops"):
        described = set(schema["paths"][path]["post"]["responses"])
        assert described == {"200", "400", "401", "403", "404", "413", "503"}
