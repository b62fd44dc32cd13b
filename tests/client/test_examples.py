"""The examples, run as a reader of them would."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.node.running import running

from .conftest import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
PRICES = (101.5, 102.25, 99.75)
EXPECTED = {
    "hello.py": ["user:alice says: hello, Bob"],
    "recovery.py": ["live: 1:0", "missed: 1:1", "missed: 2:1", "nothing is lost"],
    "service.py": [
        "32 F is 0.0 C",
        "98.6 F is 37.0 C",
        "212 F is 100.0 C",
        "refused: data: a number is meant",
    ],
    "workqueue.py": ["left over: 0", *(f"done: picture-{n}.png" for n in range(6))],
    "ticker.py": [f"user:reader-{n} sees {price}" for n in range(3) for price in PRICES],
}


# These need a node: one that keeps queues on disk, or that has rooms.
OF_A_NODE = {
    "room.py": [
        "2 are here: user:alice, user:bob",
        "user:alice hears user:carol: hello, all",
        "user:bob hears user:carol: hello, all",
        "user:alice hears user:alice: this must arrive",
        "Bob has 0 more",
    ],
    "orders.py": [
        *(f"{n} ACK" for n in range(1, 7)),
        "dead: order 4 after 3 attempts",
        "found: bob 2",
        "replayed: 1",
        "left over: 0",
        "ada 1 2 3",
        "bob 1 3 2",
    ],
}


# And these speak HTTP to one.
OVER_HTTP = {
    "push.py": [
        "phone: your taxi is here",
        "tablet: your taxi is here",
        "phone: half price today",
        "aimed 2, arrived 2, clicked 1",
        "tablet, back again: thanks for riding",
    ],
}


async def lines_of(name: str, url: str) -> list[str]:
    """What an example prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / name),
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, errors) == (0, b"")
    return out.decode().splitlines()


@pytest.mark.parametrize("edge", ["websocket", "tcp"])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_does_what_it_says(run, name, edge):
    async def test():
        async with serving() as service:
            assert sorted(await lines_of(name, service.url(edge))) == sorted(EXPECTED[name])
            assert not service.hub.sessions

    run(test())


@pytest.mark.parametrize("edge", ["websocket", "tcp"])
@pytest.mark.parametrize("name", sorted(OF_A_NODE))
def test_an_example_on_a_whole_node_does_what_it_says(run, tmp_path, name, edge):
    async def test():
        async with running(tmp_path) as node:
            assert await lines_of(name, node.addresses()[edge]) == OF_A_NODE[name]

    run(test())


@pytest.mark.parametrize("name", sorted(OVER_HTTP))
def test_an_example_over_http_does_what_it_says(run, tmp_path, name):
    async def test():
        async with running(tmp_path) as node:
            for _ in range(2):
                assert await lines_of(name, node.addresses()["http"]) == OVER_HTTP[name]

    run(test())


def test_no_example_is_forgotten():
    # tests/cli/test_cluster.py, tests/cli/test_pipeline_demo.py, tests/node/test_web_apps.py
    elsewhere = {"cluster.py", "demo.py", "demo_push.py", "demo_traffic.py"}
    elsewhere |= {"orders_fastapi.py", "chat_django.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED) | set(OF_A_NODE) | set(
        OVER_HTTP
    ) | elsewhere
