"""States in Redis: small forms stay small, and servers that forget scripts or are wrong are met."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from chappe.errors import StorageError
from chappe.push.state.states import States
from chappe.push.state.url import open_states
from chappe.push.state.user import TokenHolder
from tests.contract.push_states import DAY_MS, NOW_MS, a_note, client_id
from tests.loop import on_loop
from tests.servers import RedisServer

_numbers = count()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that a test may treat badly."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


def opened(server: RedisServer, prefix: str, more: str = "&buckets=8") -> States:
    return open_states(f"{server.url}/?prefix={prefix}{more}", Path(), lambda: NOW_MS)


async def filled(states: States, users: int) -> list[str]:
    clients = [client_id() for _ in range(users)]

    async def fill(number: int, client: str) -> None:
        device = f"f81d4fae-7dec-11d0-a765-{number:012x}"
        await states.user.claim_client("app", device, client)
        await states.user.put_token(
            number.to_bytes(4, "big") * 4, TokenHolder(client, NOW_MS + DAY_MS)
        )
        await states.user.bind("app", f"user {number}", client)
        topics = ["t", *(f"t{at}" for at in range(number % 9))]
        await states.topic.subscribe("app", client, topics, number % 3 - 1, NOW_MS, 10)

    await asyncio.gather(*(fill(number, client) for number, client in enumerate(clients)))
    await states.route.move(dict.fromkeys(clients[:100], 1))
    for _ in range(3):
        await states.message.add(a_note(), clients, 10)
    return clients


def encodings(server: RedisServer, prefix: str, kind: str) -> set[bytes]:
    keys = server.ask("KEYS", f"*{prefix}:*:{kind}:*").split(b"\r\n")[2::2]
    return {server.ask("OBJECT", "ENCODING", key.decode()).split(b"\r\n")[1] for key in keys}


@on_loop
async def test_what_there_is_most_of_is_kept_in_small_forms(redis_server: RedisServer):
    prefix = f"small{next(_numbers)}"
    states = opened(redis_server, prefix)
    clients = await filled(states, 700)
    # Clients have fields among users and among topics, whoever has many topics several.
    for kind in ("client", "device", "user", "token", "at", "wait"):
        assert encodings(redis_server, prefix, kind) == {b"listpack"}, kind
    assert encodings(redis_server, prefix, "on") == {b"intset"}
    # One with much that waits has a key of its own, and leaves its neighbours small.
    notes = [a_note(collapse=f"c{i}") for i in range(50)]
    for note in notes:
        await states.message.add(note, clients[:1], 100)
    assert encodings(redis_server, prefix, "wait") >= {b"listpack"}
    assert b"hashtable" not in encodings(redis_server, prefix, "wait")
    own = redis_server.ask("KEYS", f"*{prefix}:*:wait:*:{clients[0]}").split(b"\r\n")[2]
    assert 0 < int(redis_server.ask("PTTL", own.decode())[1:]) <= DAY_MS
    ids = [note.id for note in notes]
    assert await states.message.settle({clients[0]: ids}) == {clients[0]: ids}
    assert redis_server.ask("EXISTS", own.decode()) == b":0\r\n"
    assert len((await states.message.waiting(clients[:1]))[clients[0]]) == 3
    await states.close()


@on_loop
async def test_what_has_an_end_has_a_time_to_live(redis_server: RedisServer):
    prefix = f"live{next(_numbers)}"
    states = opened(redis_server, prefix)
    note = a_note()
    await states.message.put(note)
    await states.meta.claim("n", NOW_MS + DAY_MS)
    await states.topic.append("app", "t", note.id, NOW_MS, NOW_MS + DAY_MS, "c", 10)
    for kind in ("note", "nonce", "log", "ids", "same"):
        (key,) = redis_server.ask("KEYS", f"*{prefix}:*:{kind}:*").split(b"\r\n")[2::2]
        assert 0 < int(redis_server.ask("PTTL", key.decode())[1:]) <= DAY_MS, kind
    await states.close()


@on_loop
async def test_names_of_a_state_share_a_tag(redis_server: RedisServer):
    prefix = f"tag{next(_numbers)}"
    states = opened(redis_server, prefix)
    await filled(states, 10)
    keys = [key.decode() for key in redis_server.ask("KEYS", f"*{prefix}*").split(b"\r\n")[2::2]]
    assert {key[: key.index("}") + 1] for key in keys} == {
        f"{{{prefix}:{state}}}" for state in ("user", "route", "message", "topic")
    }
    await states.close()


@on_loop
async def test_another_number_of_buckets_is_refused(redis_server: RedisServer):
    prefix = f"count{next(_numbers)}"
    states = opened(redis_server, prefix)
    client = await states.user.claim_client("app", "dev", client_id())
    await states.close()
    states = opened(redis_server, prefix, "&buckets=16")
    with pytest.raises(StorageError, match="has 8 buckets, not 16"):
        await states.user.clients([client.id])
    await states.close()


@on_loop
async def test_a_server_that_forgot_the_scripts_is_told_them_again(redis_server: RedisServer):
    prefix = f"flush{next(_numbers)}"
    states = opened(redis_server, prefix)
    client = client_id()
    for server in range(5):
        redis_server.tell("SCRIPT", "FLUSH")
        before = await states.route.move({client: server})
        assert before == ({client: server - 1} if server else {})
    await states.close()


@on_loop
async def test_a_server_that_went_away_is_told_of_and_found_again(own_server: RedisServer):
    states = opened(own_server, "away")
    clients = await filled(states, 50)
    own_server.kill()
    with pytest.raises(StorageError, match=r"redis://127\.0\.0\.1"):
        await states.route.find(clients)
    own_server.start()
    assert len(await states.user.clients(clients)) == 50
    assert len(await states.route.find(clients)) == 50
    await states.close()
