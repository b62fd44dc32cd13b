"""Mutations: valid input, damaged in the ways that have broken decoders before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

INPUT_BYTES_MAX = 65_536
# Lengths and counts at the edges of their encodings, JSON's and msgpack's own characters, and bytes
# that no UTF-8 text holds.
INTERESTING = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xdc\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc1",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b'"',
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"null",
    b"true",
    b"NaN",
    b"-1",
    b"1e999",
    b"9" * 30,
    b"9" * 5000,
    b"[" * 2000,
    b'{"a":' * 2000,
    b"\x91" * 2000,
    b"*",
    b"\n",
)
Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def mutate(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A seed after a few mutations; the same generator state gives the same input."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5, 8))):
        rng.choice(_MUTATIONS)(rng, data, seeds)
        del data[INPUT_BYTES_MAX:]
    return bytes(data)


def _at(rng: random.Random, data: bytearray) -> int:
    return rng.randint(0, len(data))


def _flip(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _insert(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, data)
    data[at:at] = rng.choice(INTERESTING)


def _overwrite(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at, piece = _at(rng, data), rng.choice(INTERESTING)
    data[at : at + len(piece)] = piece


def _delete(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = _at(rng, data)
    del data[at : at + rng.randint(1, 16)]


def _cut(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_at(rng, data) :]


def _repeat(rng: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    start = _at(rng, data)
    piece = data[start : start + rng.randint(1, 64)]
    data[start:start] = piece * rng.choice((1, 2, 100))


def _splice(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = rng.choice(seeds)
    start = rng.randint(0, len(other))
    data[_at(rng, data) :] = other[start:]


_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _replace,
    _insert,
    _overwrite,
    _delete,
    _cut,
    _repeat,
    _splice,
)
