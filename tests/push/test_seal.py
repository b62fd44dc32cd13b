"""Secrets at rest, and the identity of a deployment."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from chappe.errors import ConfigError, StorageError
from chappe.push.identity import load_identity
from chappe.push.seal import Seal, derive_key
from chappe.push.state.sqlite import SqlitePlace

ENTROPY = Random("seals").randbytes
SEAL = Seal(derive_key(b"the cluster's secret"), ENTROPY)


def test_what_is_sealed_comes_back_and_does_not_show():
    sealed = SEAL.close(b"tell nobody", "a")
    assert b"tell nobody" not in sealed
    assert SEAL.open(sealed, "a") == b"tell nobody"
    assert sealed != SEAL.close(b"tell nobody", "a"), "a nonce is used once"


@pytest.mark.parametrize("sealed", [b"", b"short", SEAL.close(b"x", "b"), bytes(60)])
def test_another_record_or_none_is_refused(sealed):
    with pytest.raises(StorageError, match="seal of a"):
        SEAL.open(sealed, "a")


def test_any_changed_bit_is_refused():
    sealed = SEAL.close(b"x", "a")
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(StorageError):
            SEAL.open(bytes(changed), "a")


def test_keys_of_other_lengths_are_refused():
    with pytest.raises(ConfigError, match="push key"):
        Seal(b"short", ENTROPY)
    assert derive_key(b"a") != derive_key(b"b")


def test_processes_that_start_together_have_one_identity():  # P4
    async def main():
        states = SqlitePlace(None, lambda: 1).states
        found = await asyncio.gather(*(load_identity(states.meta, SEAL, ENTROPY) for _ in range(5)))
        assert len({each.public for each in found}) == 1
        with pytest.raises(StorageError):
            await load_identity(states.meta, Seal(bytes(32), ENTROPY), ENTROPY)
        await states.close()

    asyncio.run(main())


def test_a_comet_signs_with_what_devices_pin():  # P4
    async def main():
        states = SqlitePlace(None, lambda: 1).states
        identity = await load_identity(states.meta, SEAL, ENTROPY)
        identity.key.public_key().verify(identity.key.sign(b"hello"), b"hello")
        assert identity.key.public_key().public_bytes_raw() == identity.public
        await states.close()

    asyncio.run(main())
