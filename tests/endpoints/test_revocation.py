"""Revoked tokens: refused on every node and after a restart, their sessions closed everywhere."""

from __future__ import annotations

from pathlib import Path

import jwt
import pytest

from chappe.access.token import LEEWAY_S, Key, TokenAuthenticator
from chappe.endpoints.directory import Directory
from chappe.endpoints.revocation import DirectoryRevocations
from chappe.errors import CloseCode, Forbidden
from chappe.ids import Snowflake
from chappe.store.memory import MemoryStore
from chappe.store.store import Store
from chappe.wire.ops import Hello
from tests.hub.rig import Endpoint, ManualClock, Rig
from tests.loop import on_loop

SECRET = b"a secret of more than thirty-two bytes: shop"


class Site:
    """A node's hub, whose revocations are in a directory."""

    def __init__(self, folder: Path, number: int, store: Store, clock: ManualClock) -> None:
        (folder / "key").write_bytes(SECRET)
        self.clock = clock
        self.directory = Directory(ids=Snowflake(number, clock.wall_ms), clock=clock, store=store)
        self.revocations = DirectoryRevocations(self.directory)
        key = Key(id="k", file=str(folder / "key"), app="shop")
        self.tokens = TokenAuthenticator([key], clock, self.revocations)
        self.rig = Rig(authenticator=self.tokens)
        self.revocations.close_with(self.rig.hub.close_token)

    def token(self, token_id: str) -> str:
        claims = {
            "app": "shop",
            "aud": "chappe",
            "sub": "user:alice",
            "exp": self.clock.wall_ms() // 1000 + 600,
            "jti": token_id,
        }
        return jwt.encode(claims, SECRET, "HS256")

    def enter(self, token: str) -> Endpoint:
        endpoint = self.rig.stranger()
        self.rig.hub.admit(endpoint.session, Hello(token=token))
        return endpoint

    def revoke(self, token_id: str) -> int:
        """As the HTTP edge does; returns how many sessions were closed."""
        self.tokens.revoke("shop", token_id, self.clock.wall_ms() / 1000 + 600)
        return self.rig.hub.close_token("shop", token_id)


@on_loop
async def test_a_revoked_token_is_refused_everywhere_and_its_sessions_are_closed(tmp_path: Path):
    clock = ManualClock()
    one, two = (Site(tmp_path, number, MemoryStore(), clock) for number in (1, 2))
    one.directory.on_change = lambda record: two.directory.merge([record])
    token, other = one.token("7f3a"), one.token("7f3b")
    here, there, bystander = one.enter(token), two.enter(token), two.enter(other)
    assert one.revoke("7f3a") == 1
    assert here.sink.closed == (CloseCode.REVOKED, "the token was revoked")
    assert there.sink.closed == (CloseCode.REVOKED, "the token was revoked")
    assert bystander.sink.closed is None
    for site in (one, two):
        with pytest.raises(Forbidden, match="revoked"):
            site.enter(token)
        site.enter(other)
        await site.directory.close()


@on_loop
async def test_a_revoked_token_stays_so_after_a_restart_until_it_would_have_expired(
    tmp_path: Path,
):
    clock, store = ManualClock(), MemoryStore()
    one = Site(tmp_path, 1, store, clock)
    token = one.token("7f3a")
    one.revoke("7f3a")
    await one.directory.close()
    two = Site(tmp_path, 1, store, clock)
    await two.directory.load()
    with pytest.raises(Forbidden, match="revoked"):
        two.enter(token)
    # As long as the token is read with tolerance, so long it is remembered.
    clock.now_s += 600 + LEEWAY_S - 1
    two.directory.merge([])
    with pytest.raises(Forbidden, match="revoked"):
        two.enter(token)
    clock.now_s += 2
    two.directory.merge([])
    with pytest.raises(Forbidden, match="expired"):
        two.enter(token)
    await two.directory.close()
    assert [page async for page in store.scan("directory")] == []


@on_loop
async def test_a_token_that_never_expires_can_be_revoked(tmp_path: Path):
    site = Site(tmp_path, 1, MemoryStore(), ManualClock())
    for token_id, until in (("endless", 1e300), ("infinite", float("inf")), ("past", 0.0)):
        site.tokens.revoke("shop", token_id, until)
    assert site.revocations.is_revoked("shop", "endless")
    assert site.revocations.is_revoked("shop", "infinite")
    assert not site.revocations.is_revoked("other", "endless")
    await site.directory.close()
