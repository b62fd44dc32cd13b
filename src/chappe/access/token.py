"""Tokens: JWTs that say who a user is and what it may do.

    {"app": "shop", "sub": "user:alice", "exp": 1767225600, "aud": "chappe", "jti": "7f3a",
     "send": ["user:*"], "publish": ["topic:chat.*"], "subscribe": ["topic:*"],
     "provide": ["service:billing"], "manage": ["avatar:*"], "admin": []}

A key belongs to one app, and `kid` in a token's header only chooses among the keys: a token for
another app than its key's is refused, whoever signed it. The algorithm comes from the key, never
from the token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from chappe.access.revocation import MemoryRevocations, Revocations
from chappe.address import check_app, parse_address
from chappe.clock import Clock
from chappe.errors import BadRequest, ConfigError, Forbidden
from chappe.hub.grant import Grant, Scope, scope_of
from chappe.wire.ops import Hello

AUDIENCE = "chappe"
# Clocks of two machines differ; a token's times are read with this much tolerance.
LEEWAY_S = 10
# RFC 7518 asks for a key as long as the hash.
SECRET_BYTES_MIN = 32
TOKEN_CHARACTERS_MAX = 8192
PATTERNS_MAX = 256

_TIME_MAX = 1e12
PATTERN = re.compile(r"\*|[a-z]+:\S*")


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a key lies and whose it is."""

    id: str
    file: str
    app: str = "default"
    algorithm: Literal["HS256", "EdDSA"] = "HS256"


class _LoadedKey(msgspec.Struct, frozen=True):
    app: str
    algorithm: str
    material: Any


class TokenAuthenticator:
    """Admits the bearers of tokens that one of its keys has signed."""

    def __init__(
        self, keys: Iterable[Key], clock: Clock, revocations: Revocations | None = None
    ) -> None:
        self._clock = clock
        self._keys: dict[str, _LoadedKey] = {}
        self._revocations = revocations or MemoryRevocations(clock)
        for key in keys:
            if key.id in self._keys:
                raise ConfigError(f"access.keys: two keys have the id {key.id!r}")
            self._keys[key.id] = _load(key)

    def authenticate(self, hello: Hello) -> Grant:
        """Return what a token grants; raises Forbidden, or BadRequest for a malformed hello."""
        if not hello.token:
            raise Forbidden("token: missing")
        grant = self.verify(hello.token)
        if hello.app is not None and hello.app != grant.app:
            raise Forbidden("app: the token is for another app")
        if hello.as_ and hello.as_ != grant.address:
            parse_address(hello.as_, "as")
            raise Forbidden("as: the token is for another identity")
        return grant

    def verify(self, token: str) -> Grant:
        """Read a token; raises Forbidden saying what is wrong, never quoting the token."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise Forbidden(f"token: longer than {TOKEN_CHARACTERS_MAX} characters")
        key = self._key_of(token)
        claims = self._claims(token, key)
        if claims.get("app") != key.app:
            raise Forbidden("token: app is missing or not the key's")
        token_id = claims.get("jti")
        if token_id is not None and not isinstance(token_id, str):
            raise Forbidden("token: jti is not a string")
        if token_id is not None and self._revocations.is_revoked(key.app, token_id):
            raise Forbidden("token: revoked")
        try:
            address = parse_address(claims["sub"], "sub")
        except BadRequest as error:
            raise Forbidden(f"token: {error.reason}") from None
        if address.kind != "user":
            raise Forbidden("token: sub must be a user")
        return Grant(
            app=key.app,
            address=str(address),
            send=_scope(claims, "send"),
            publish=_scope(claims, "publish"),
            subscribe=_scope(claims, "subscribe"),
            provide=_scope(claims, "provide"),
            manage=_scope(claims, "manage"),
            administer=_scope(claims, "admin"),
            expires_at=float(claims["exp"]) + LEEWAY_S,
            token_id=token_id,
        )

    def revoke(self, app: str, token_id: str, expires_at: float) -> None:
        """Refuse a token from now on, until it would have expired.

        Whoever revokes also closes the sessions that the token opened.
        """
        self._revocations.revoke(app, token_id, expires_at + LEEWAY_S)

    def _key_of(self, token: str) -> _LoadedKey:
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except jwt.InvalidTokenError:
            raise Forbidden("token: not a JWT") from None
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        key = self._keys.get(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise Forbidden("token: no key of that id")
        return key

    def _claims(self, token: str, key: _LoadedKey) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.material,
                algorithms=[key.algorithm],
                audience=AUDIENCE,
                # Times are checked below, on the clock that was passed in.
                options={
                    "require": ["exp", "sub", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidTokenError as error:
            raise Forbidden(f"token: {error}") from None
        now = self._clock.wall_ms() / 1000
        if now >= _time(claims, "exp") + LEEWAY_S:
            raise Forbidden("token: expired")
        if "nbf" in claims and now < _time(claims, "nbf") - LEEWAY_S:
            raise Forbidden("token: not valid yet")
        return claims


def _load(key: Key) -> _LoadedKey:
    where = f"access.keys[{key.id}]"
    try:
        app = check_app(key.app)
        data = Path(key.file).read_bytes()
    except BadRequest as error:
        raise ConfigError(f"{where}: {error.reason}") from None
    except OSError as error:
        raise ConfigError(f"{where}.file: {error}") from None
    if key.algorithm == "HS256":
        secret = data.strip()
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigError(
                f"{where}.file: a secret of at least {SECRET_BYTES_MIN} bytes, please"
            )
        try:
            # What anybody may know is no secret; left until later, it would fail at every hello.
            jwt.get_algorithm_by_name(key.algorithm).prepare_key(secret)
        except jwt.InvalidKeyError:
            raise ConfigError(f"{where}.file: a key in PEM form is not a secret") from None
        return _LoadedKey(app, key.algorithm, secret)
    try:
        public = load_pem_public_key(data)
    except ValueError:
        raise ConfigError(f"{where}.file: not a public key in PEM form") from None
    if not isinstance(public, Ed25519PublicKey):
        raise ConfigError(f"{where}.file: EdDSA needs an Ed25519 key")
    return _LoadedKey(app, key.algorithm, public)


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Forbidden(f"token: {name} is not a number")
    if not abs(value) < _TIME_MAX:  # so written, it refuses NaN as well
        raise Forbidden(f"token: {name} is not a time")
    return float(value)


def _scope(claims: dict[str, Any], name: str) -> Scope:
    patterns = claims.get(name, [])
    if (
        not isinstance(patterns, list)
        or len(patterns) > PATTERNS_MAX
        or not all(isinstance(p, str) and PATTERN.fullmatch(p) for p in patterns)
    ):
        raise Forbidden(
            f"token: {name} is not a list of at most {PATTERNS_MAX} addresses or prefixes"
        )
    return scope_of(patterns)
