"""Bridges of clients: every store of users keeps them the same way."""

from __future__ import annotations

from tests.contract.push_states import Opening, client_id, opened, opening
from tests.loop import on_loop

__all__ = ["opening"]


async def a_client(users, device="phone"):
    return (await users.claim_client("shop", device, client_id())).id


@on_loop
async def test_a_bridge_is_kept_for_a_client_the_last_one_counts(opening: Opening):
    async with opened(opening) as states:
        users = states.user
        client = await a_client(users)
        assert await users.bridges([client], "webpush") == {}
        assert await users.put_bridge(client, "webpush", b"\0one")
        assert await users.put_bridge(client, "webpush", b"two\xff")
        assert await users.bridges([client, client_id(), "x"], "webpush") == {client: b"two\xff"}


@on_loop
async def test_kinds_and_clients_are_apart(opening: Opening):
    async with opened(opening) as states:
        users = states.user
        one, other = await a_client(users), await a_client(users, "tv")
        await users.put_bridge(one, "webpush", b"1")
        await users.put_bridge(one, "another", b"2")
        await users.put_bridge(other, "webpush", b"3")
        assert await users.remove_bridge(one, "webpush")
        assert await users.bridges([one, other], "webpush") == {other: b"3"}
        assert await users.bridges([one, other], "another") == {one: b"2"}


@on_loop
async def test_nobody_gets_a_bridge_who_is_not_there(opening: Opening):
    async with opened(opening) as states:
        for nobody in (client_id(), "x"):
            assert not await states.user.put_bridge(nobody, "webpush", b"1")
            assert await states.user.bridges([nobody], "webpush") == {}
            assert not await states.user.remove_bridge(nobody, "webpush")


@on_loop
async def test_a_bridge_is_forgotten_if_it_is_still_the_one_that_is_meant(opening: Opening):
    async with opened(opening) as states:
        users = states.user
        client = await a_client(users)
        await users.put_bridge(client, "webpush", b"new")
        assert not await users.remove_bridge(client, "webpush", b"old")
        assert await users.bridges([client], "webpush") == {client: b"new"}
        assert await users.remove_bridge(client, "webpush", b"new")
        assert not await users.remove_bridge(client, "webpush")


@on_loop
async def test_bridges_go_with_their_client(opening: Opening):
    async with opened(opening) as states:
        users = states.user
        client = await a_client(users)
        await users.put_bridge(client, "webpush", b"1")
        await users.remove_client(client)
        assert await users.bridges([client], "webpush") == {}
        # One of the same id, later, does not find them.
        assert (await users.claim_client("shop", "phone", client)).id == client
        assert await users.bridges([client], "webpush") == {}


@on_loop
async def test_a_bridge_is_there_for_another_process(opening: Opening):
    async with opened(opening) as first:
        client = await a_client(first.user)
        await first.user.put_bridge(client, "webpush", b"1")
        if opening.url != "memory":
            async with opened(opening) as second:
                assert await second.user.bridges([client], "webpush") == {client: b"1"}
