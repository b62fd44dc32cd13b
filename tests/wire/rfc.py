"""X25519, Ed25519, HKDF and ChaCha20-Poly1305 once more, slowly, from the text of their RFCs.

What is published for others to hold themselves against is computed here a second time, by nothing
but integers and hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

P = 2**255 - 19


def x25519(k: bytes, u: bytes) -> bytes:
    """RFC 7748, section 5."""
    scalar = int.from_bytes(bytes([k[0] & 248]) + k[1:31] + bytes([k[31] & 127 | 64]), "little")
    x1 = int.from_bytes(u, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for t in reversed(range(255)):
        bit = scalar >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a % P, c * b % P, a * a % P, b * b % P
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * bb % P, (aa - bb) * (aa + 121665 * (aa - bb)) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def x25519_public(k: bytes) -> bytes:
    return x25519(k, bytes([9]) + bytes(31))


def hkdf_sha256(ikm: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, section 2."""
    prk = hmac.digest(salt, ikm, "sha256")
    out = block = b""
    for n in range(1, -(-length // 32) + 1):
        block = hmac.digest(prk, block + info + bytes([n]), "sha256")
        out += block
    return out[:length]


_D = -121665 * pow(121666, P - 2, P) % P
_L = 2**252 + 27742317777372353535851937790883648493
Point = tuple[int, int, int, int]


def _add(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * _D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _multiply(s: int, p: Point) -> Point:
    q: Point = (0, 1, 1, 0)
    while s:
        if s & 1:
            q = _add(q, p)
        p, s = _add(p, p), s >> 1
    return q


def _x(y: int, sign: int) -> int:
    xx = (y * y - 1) * pow(_D * y * y + 1, P - 2, P)
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return P - x if x & 1 != sign else x


_GY = 4 * pow(5, P - 2, P) % P
_GX = _x(_GY, 0)
_G: Point = (_GX, _GY, 1, _GX * _GY % P)


def _compress(p: Point) -> bytes:
    inverse = pow(p[2], P - 2, P)
    x, y = p[0] * inverse % P, p[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _sha512(data: bytes) -> int:
    return int.from_bytes(hashlib.sha512(data).digest(), "little")


def ed25519(secret: bytes, message: bytes) -> tuple[bytes, bytes]:
    """RFC 8032, section 5.1: the public key, and the signature."""
    h = hashlib.sha512(secret).digest()
    a = int.from_bytes(h[:32], "little") & (1 << 254) - 8 | 1 << 254
    public = _compress(_multiply(a, _G))
    r = _sha512(h[32:] + message) % _L
    point = _compress(_multiply(r, _G))
    s = (r + _sha512(point + public + message) % _L * a) % _L
    return public, point + s.to_bytes(32, "little")


def _quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
    for first, second, third, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[first] = (x[first] + x[second]) & 0xFFFFFFFF
        v = x[third] ^ x[first]
        x[third] = (v << turn | v >> 32 - turn) & 0xFFFFFFFF


def _chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        counter,
        *struct.unpack("<3I", nonce),
    ]
    x = start.copy()
    for _ in range(10):
        for n in range(4):
            _quarter(x, n, 4 + n, 8 + n, 12 + n)
        for n in range(4):
            _quarter(x, n, 4 + (n + 1) % 4, 8 + (n + 2) % 4, 12 + (n + 3) % 4)
    return struct.pack("<16I", *[(a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)])


def _poly1305(key: bytes, data: bytes) -> bytes:
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(data), 16):
        total = (total + int.from_bytes(data[at : at + 16] + b"\1", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def chacha20_poly1305(key: bytes, nonce: bytes, content: bytes, aad: bytes) -> bytes:
    """RFC 8439, section 2.8."""
    stream = b"".join(_chacha20_block(key, n + 1, nonce) for n in range(-(-len(content) // 64)))
    encrypted = bytes(a ^ b for a, b in zip(content, stream, strict=False))
    padded = aad + bytes(-len(aad) % 16) + encrypted + bytes(-len(encrypted) % 16)
    lengths = struct.pack("<QQ", len(aad), len(encrypted))
    return encrypted + _poly1305(_chacha20_block(key, 0, nonce)[:32], padded + lengths)
