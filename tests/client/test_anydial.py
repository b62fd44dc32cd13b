"""A client that knows several hubs goes on with another when one is gone."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from chappe.client import ClientOptions, Reconnected, connect
from chappe.errors import ConfigError, ConnectionClosed

from .conftest import QUICK, serving

NOBODY = "tcp://127.0.0.1:9"


@pytest.mark.parametrize("edge", ["websocket", "tcp"])
def test_a_client_goes_to_the_next_hub_when_its_own_is_gone(run, edge):
    async def test():
        async with serving() as one, serving() as other:
            back = asyncio.Event()
            client = await connect(
                [one.url(edge), other.url(edge)],
                as_="user:a",
                options=ClientOptions(**QUICK),
                on_notice=lambda notice: back.set() if isinstance(notice, Reconnected) else None,
            )
            here, there = (one, other) if one.hub.sessions else (other, one)
            here.stop()
            await back.wait()
            assert await client.presence("user:a")
            assert len(there.hub.sessions) == 1
            assert client.reconnects == 1
            await client.close()

    run(test())


def test_clients_spread_over_the_hubs(run):
    async def test():
        async with serving() as one, serving() as other:
            urls = [one.url("tcp"), other.url("tcp")]
            clients = [await connect(urls, as_="user:a", rng=Random(seed)) for seed in range(20)]
            assert len(one.hub.sessions) > 2
            assert len(other.hub.sessions) > 2
            await asyncio.gather(*(client.close() for client in clients))

    run(test())


def test_one_hub_that_answers_is_enough(run):
    async def test():
        async with serving() as service:
            for seed in range(4):
                urls = [NOBODY, service.url("tcp"), NOBODY]
                async with connect(urls, as_="user:a", rng=Random(seed)) as client:
                    assert client.connected

    run(test())


def test_no_hub_at_all_is_said_once_all_were_tried(run):
    async def test():
        with pytest.raises(ConnectionClosed, match="cannot connect"):
            await connect([NOBODY, NOBODY], as_="user:a")

    run(test())


@pytest.mark.parametrize(
    ("urls", "said"),
    [([], "an empty list"), (["ws://here", "tcp://here"], "not both in one list")],
)
def test_a_list_that_makes_no_sense_is_refused(urls, said):
    with pytest.raises(ConfigError, match=said):
        connect(urls, as_="user:a")
