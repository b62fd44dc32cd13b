"""VAPID: signed for one push service, with a key that a deployment has once."""

from __future__ import annotations

import asyncio
from random import Random

import jwt
import pytest

from chappe.errors import StorageError
from chappe.push.seal import Seal
from chappe.push.state.sqlite import SqlitePlace
from chappe.push.webpush.encryption import KEY_SEED_BYTES
from chappe.push.webpush.vapid import Vapid, load_vapid
from tests.push.webpush.browsers import Request

NOW_S = 1_800_000_000
ORIGIN = "https://push.example"
SEED = Random("vapid").randbytes(KEY_SEED_BYTES)


def request(header: str) -> Request:
    return Request("/", {"authorization": header}, b"")


def test_the_header_is_signed_by_the_key_that_it_shows():
    vapid = Vapid(SEED, "mailto:ops@example.com")
    claims = request(vapid.authorization(ORIGIN, NOW_S)).claims(ORIGIN)
    assert claims == {
        "aud": ORIGIN,
        "exp": NOW_S + 12 * 3600,
        "sub": "mailto:ops@example.com",
        "k": vapid.public_text,
    }


def test_without_a_contact_none_is_named():
    assert "sub" not in request(Vapid(SEED).authorization(ORIGIN, NOW_S)).claims(ORIGIN)


def test_a_header_of_another_key_or_for_another_service_does_not_hold():
    header = Vapid(SEED).authorization(ORIGIN, NOW_S)
    with pytest.raises(jwt.InvalidAudienceError):
        request(header).claims("https://other.example")
    other = Vapid(SEED[::-1])
    shown = header.replace(Vapid(SEED).public_text, other.public_text)
    with pytest.raises(jwt.InvalidSignatureError):
        request(shown).claims(ORIGIN)


def test_a_header_is_used_again_for_half_of_its_life():
    vapid = Vapid(SEED)
    first = vapid.authorization(ORIGIN, NOW_S)
    assert vapid.authorization(ORIGIN, NOW_S + 6 * 3600 - 1) == first
    later = vapid.authorization(ORIGIN, NOW_S + 6 * 3600)
    assert request(later).claims(ORIGIN)["exp"] == NOW_S + 18 * 3600
    # A clock that was set back: a day off is more than push services take.
    back = vapid.authorization(ORIGIN, NOW_S - 24 * 3600)
    assert request(back).claims(ORIGIN)["exp"] == NOW_S - 12 * 3600


def test_strangers_cannot_make_it_remember_ever_more_services():
    vapid = Vapid(SEED)
    for number in range(1001):
        vapid.authorization(f"https://{number}.example", NOW_S)
    assert len(vapid._signed) <= 1000


def test_processes_of_a_deployment_get_one_key_and_the_store_does_not_know_it():
    async def main():
        states = SqlitePlace(None, lambda: NOW_S * 1000).states
        entropy = Random("deployment").randbytes
        seal = Seal(bytes(32), entropy)
        one = await load_vapid(states.meta, seal, entropy)
        other = await load_vapid(states.meta, seal, entropy)
        assert one.public_text == other.public_text
        kept = await states.meta.kept("vapid")
        assert one.key.private_numbers().private_value.to_bytes(32) not in kept
        with pytest.raises(StorageError):
            await load_vapid(states.meta, Seal(b"x" * 32, entropy), entropy)
        await states.close()

    asyncio.run(main())
