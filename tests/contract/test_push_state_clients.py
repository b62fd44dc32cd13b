"""Clients of push wherever they are kept: how many an app, and tokens of each."""

from __future__ import annotations

import asyncio

from chappe.errors import Overload
from chappe.push.state.user import TOKENS_PER_CLIENT_MAX, Client, TokenHolder
from tests.contract.push_states import DAY_MS, NOW_MS, Opening, client_id, opened, opening
from tests.loop import on_loop

__all__ = ["opening"]


@on_loop
async def test_of_a_clients_tokens_the_newest_are_good_however_many_it_takes(opening: Opening):
    async with opened(opening) as states:
        user, most = states.user, TOKENS_PER_CLIENT_MAX
        client = (await user.claim_client("app", "dev", client_id())).id
        assert await user.bind("app", "ann", client)
        other = (await user.claim_client("app", "dev2", client_id())).id
        await user.put_token(b"o" * 16, TokenHolder(other, NOW_MS + 1))
        digests = [(i * 0x9E3779B9 % 2**32).to_bytes(4, "big") * 4 for i in range(300)]
        for i, digest in enumerate(digests):
            await user.put_token(digest, TokenHolder(client, NOW_MS + DAY_MS + i))
        good = await user.tokens(digests, NOW_MS)
        assert [holder is not None for holder in good] == [False] * (300 - most) + [True] * most
        # The new one is kept, though it expires before the others.
        await user.put_token(b"n" * 16, TokenHolder(client, NOW_MS + 5))
        assert await user.tokens([b"n" * 16, *digests[-most:]], NOW_MS) == [
            TokenHolder(client, NOW_MS + 5),
            None,
            *good[-most + 1 :],
        ]
        assert (await user.clients([client]))[client] == Client(client, "app", "dev", "ann")
        assert await user.revoke_client(client) == most
        assert await user.tokens([*digests, b"o" * 16], NOW_MS) == [None] * 300 + [
            TokenHolder(other, NOW_MS + 1)
        ]


@on_loop
async def test_an_app_has_no_more_clients_than_it_may_however_many_come_at_once(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        known = await one.user.claim_client("app", "d0", client_id(), 3)
        await one.user.claim_client("other", "d0", client_id(), 3)
        claims = [
            states.user.claim_client("app", f"d{i}", client_id(), 3)
            for i in range(1, 11)
            for states in (one, other)
        ]
        made = await asyncio.gather(*claims, return_exceptions=True)
        assert {type(each) for each in made} == {Client, Overload}
        assert await one.user.count_clients("app") == 3
        assert len({each.id for each in made if isinstance(each, Client)}) == 2
        # Who has one keeps it, and without a bound there is room.
        assert await other.user.claim_client("app", "d0", client_id(), 3) == known
        await other.user.claim_client("app", "more", client_id())
        await other.user.remove_client(known.id)
        await other.user.claim_client("app", "d0", client_id(), 4)
