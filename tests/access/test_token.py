"""Tokens: what lets somebody in, what does not, and what the refusal says."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from chappe.access.token import (
    LEEWAY_S,
    PATTERNS_MAX,
    TOKEN_CHARACTERS_MAX,
    Key,
    TokenAuthenticator,
)
from chappe.errors import BadRequest, ConfigError, Forbidden
from chappe.hub.grant import EVERYTHING
from chappe.wire.ops import Hello
from tests.hub.rig import ManualClock

SECRET = b"a secret of more than thirty-two bytes: shop"
OTHER_SECRET = b"a secret of more than thirty-two bytes: other"
# The same in every process that collects the tests, as what is made of it names some of them.
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PEM = PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
RAW = PRIVATE.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
MISSING = object()

Sign = Callable[..., str]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").write_bytes(SECRET + b"\n")
    (tmp_path / "other").write_bytes(OTHER_SECRET)
    (tmp_path / "ed").write_bytes(PEM)
    return tmp_path


@pytest.fixture
def tokens(folder: Path, clock: ManualClock) -> TokenAuthenticator:
    """Two apps with a secret each, and one of them with a public key besides."""
    return TokenAuthenticator(
        [
            Key(id="shop", file=str(folder / "shop"), app="shop"),
            Key(id="other", file=str(folder / "other"), app="other"),
            Key(id="ed", file=str(folder / "ed"), app="shop", algorithm="EdDSA"),
        ],
        clock,
    )


@pytest.fixture
def sign(clock: ManualClock) -> Sign:
    """Sign a token; claims that are given change or, with MISSING, leave out the usual ones."""

    def signing(
        key: Any = SECRET, algorithm: str | None = "HS256", kid: Any = "shop", **claims: Any
    ) -> str:
        now = clock.wall_ms() // 1000
        usual = {"app": "shop", "aud": "chappe", "sub": "user:alice", "exp": now + 600, "jti": "j1"}
        kept = {n: v for n, v in (usual | claims).items() if v is not MISSING}
        headers = {} if kid is MISSING else {"kid": kid}
        return jwt.encode(kept, key, algorithm, headers=headers)

    return signing


def named(change: dict[str, Any]) -> str:
    """Name a change for the tests of it: keys by their names, not by what they are."""
    known = {id(MISSING): "MISSING", id(PRIVATE): "PRIVATE", id(RAW): "RAW"}
    told = (f"{n}={known.get(id(v)) or ascii(v)[:40]}" for n, v in change.items())
    return " ".join(told)


def forged(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    """A token put together by hand, for headers that no library would make."""
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def test_a_good_token_grants_what_it_says(
    tokens: TokenAuthenticator, sign: Sign, clock: ManualClock
) -> None:
    token = sign(send=["user:*"], publish=["topic:chat.*", "topic:news"], subscribe=["*"])
    grant = tokens.authenticate(Hello(token=token))
    assert (grant.app, grant.address, grant.token_id) == ("shop", "user:alice", "j1")
    assert grant.expires_at == clock.wall_ms() // 1000 + 600 + LEEWAY_S
    assert "user:bob" in grant.send
    assert "topic:bob" not in grant.send
    assert "topic:chat.a" in grant.publish
    assert "topic:chat" not in grant.publish
    assert grant.subscribe is EVERYTHING
    assert "user:alice" not in grant.administer
    assert "service:billing" not in grant.provide


def test_a_token_says_which_services_its_bearer_provides(
    tokens: TokenAuthenticator, sign: Sign
) -> None:
    grant = tokens.verify(sign(provide=["service:billing"]))  # H18
    assert "service:billing" in grant.provide
    assert "service:mail" not in grant.provide
    assert "service:billing" not in grant.send


def test_a_token_says_which_avatars_its_bearer_manages(
    tokens: TokenAuthenticator, sign: Sign
) -> None:
    grant = tokens.verify(sign(manage=["avatar:support-*"]))  # H15
    assert "avatar:support-3" in grant.manage
    assert "avatar:sales-3" not in grant.manage
    assert "avatar:support-3" not in grant.administer


def test_a_token_without_rights_grants_none(tokens: TokenAuthenticator, sign: Sign) -> None:
    grant = tokens.verify(sign())
    for scope in (
        grant.send,
        grant.publish,
        grant.subscribe,
        grant.provide,
        grant.manage,
        grant.administer,
    ):
        assert "user:alice" not in scope
        assert "topic:t" not in scope
        assert "avatar:a" not in scope


def test_a_token_signed_by_a_private_key_is_verified_by_the_public_one(
    tokens: TokenAuthenticator, sign: Sign
) -> None:
    assert tokens.verify(sign(PRIVATE, "EdDSA", "ed")).address == "user:alice"
    with pytest.raises(Forbidden):
        tokens.verify(sign(Ed25519PrivateKey.generate(), "EdDSA", "ed"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"key": OTHER_SECRET}, "ignature"),
        ({"key": OTHER_SECRET, "kid": "other"}, "app"),  # another app's key cannot sign for shop
        ({"kid": "other"}, "ignature"),
        ({"kid": "ed"}, "alg"),  # HS256 where the key is EdDSA
        ({"key": RAW, "kid": "ed"}, "alg"),  # ... signed with the public key, which anybody has
        ({"key": PRIVATE, "algorithm": "EdDSA", "kid": "shop"}, "alg"),
        ({"algorithm": "HS512", "key": SECRET * 2}, "alg"),
        ({"kid": "nobody"}, "no key"),
        ({"kid": MISSING}, "no key"),  # with several keys, one has to be named
        ({"app": "other"}, "app"),
        ({"app": MISSING}, "app"),
        ({"app": ["shop"]}, "app"),
        ({"aud": MISSING}, "aud"),
        ({"aud": "somebody else"}, "udience"),
        ({"sub": MISSING}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "alice"}, "sub"),
        ({"sub": "topic:news"}, "sub"),
        ({"sub": "user:*"}, "sub"),
        ({"sub": "user:a\x00"}, "sub"),
        ({"exp": MISSING}, "exp"),
        ({"exp": "soon"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"exp": float("nan")}, "exp"),
        ({"exp": 0}, "expired"),
        ({"nbf": "later"}, "nbf"),
        ({"jti": 7}, "JWT ID"),
        ({"jti": ["j"]}, "JWT ID"),
        ({"send": "user:*"}, "send"),
        ({"send": [7]}, "send"),
        ({"publish": ["no address"]}, "publish"),
        ({"subscribe": ["topic:a b"]}, "subscribe"),
        ({"manage": ["avatar"]}, "manage"),
        ({"admin": ["**"]}, "admin"),
        ({"admin": {"*": True}}, "admin"),
        ({"send": ["user:a"] * (PATTERNS_MAX + 1)}, "send"),
    ],
    ids=lambda value: named(value) if isinstance(value, dict) else None,
)
def test_a_token_with_anything_wrong_is_refused_and_the_reason_says_what(
    tokens: TokenAuthenticator, sign: Sign, change: dict[str, Any], said: str
) -> None:
    token = sign(**change)
    with pytest.raises(Forbidden, match=said) as refused:
        tokens.verify(token)
    _check_no_secret_in(str(refused.value), token)


def test_no_algorithm_is_no_signature(tokens: TokenAuthenticator, clock: ManualClock) -> None:
    claims = {
        "app": "shop",
        "aud": "chappe",
        "sub": "user:alice",
        "exp": clock.wall_ms() // 1000 + 600,
    }
    for algorithm in ("none", "None", "NONE", "", None, 7, ["HS256"]):
        for kid in ("shop", "ed"):
            with pytest.raises(Forbidden):
                tokens.verify(forged({"alg": algorithm, "typ": "JWT", "kid": kid}, claims))
    for kid in (7, None, ["shop"], {"shop": 1}):
        with pytest.raises(Forbidden):
            tokens.verify(forged({"alg": "HS256", "kid": kid}, claims, b"x" * 32))


def test_times_are_read_on_the_given_clock_with_a_little_tolerance(
    tokens: TokenAuthenticator, sign: Sign, clock: ManualClock
) -> None:
    now = clock.wall_ms() // 1000
    token = sign(exp=now + 100, nbf=now + LEEWAY_S)
    tokens.verify(token)
    with pytest.raises(Forbidden, match="not valid yet"):
        tokens.verify(sign(nbf=now + LEEWAY_S + 1))
    clock.now_s += 100 + LEEWAY_S - 1
    tokens.verify(token)
    clock.now_s += 1
    with pytest.raises(Forbidden, match="expired"):
        tokens.verify(token)


def test_a_revoked_token_is_refused_and_others_are_not(
    tokens: TokenAuthenticator, sign: Sign, clock: ManualClock
) -> None:
    revoked, other = sign(), sign(jti="j2")
    namesake = sign(OTHER_SECRET, kid="other", app="other")
    tokens.revoke("shop", "j1", clock.wall_ms() / 1000 + 600)
    with pytest.raises(Forbidden, match="revoked"):
        tokens.verify(revoked)
    tokens.verify(other)
    tokens.verify(namesake)
    tokens.verify(sign(jti=MISSING))


def test_a_hello_must_agree_with_its_token(tokens: TokenAuthenticator, sign: Sign) -> None:
    token = sign()
    tokens.authenticate(Hello(token=token, as_="user:alice", app="shop"))
    for hello, error, said in (
        (Hello(), Forbidden, "token: missing"),
        (Hello(token=""), Forbidden, "token: missing"),
        (Hello(token=token, app="other"), Forbidden, "app"),
        (Hello(token=token, as_="user:bob"), Forbidden, "as"),
        (Hello(token=token, as_="nonsense"), BadRequest, "as"),
    ):
        with pytest.raises(error, match=said) as refused:
            tokens.authenticate(hello)
        _check_no_secret_in(str(refused.value), token)


def test_one_key_alone_need_not_be_named(folder: Path, clock: ManualClock, sign: Sign) -> None:
    alone = TokenAuthenticator([Key(id="k", file=str(folder / "shop"), app="shop")], clock)
    assert alone.verify(sign(kid=MISSING)).app == "shop"
    with pytest.raises(Forbidden):
        alone.verify(sign(kid="another"))
    nobody = TokenAuthenticator([], clock)
    with pytest.raises(Forbidden):
        nobody.verify(sign(kid=MISSING))


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "\x00",
        "é.é.é",
        "=" * 100,
        "e30.e30.e30",
        "A" * TOKEN_CHARACTERS_MAX,
        "A" * (TOKEN_CHARACTERS_MAX + 1),
        forged({"alg": "HS256", "kid": "shop", "crit": ["b64"], "b64": False}, {}),
        base64.urlsafe_b64encode(b"[" * 5000).decode() + ".e30.",
    ],
    ids=lambda token: ascii(token[:20]),
)
def test_garbage_is_refused(tokens: TokenAuthenticator, token: str) -> None:
    with pytest.raises(Forbidden, match="token: ") as refused:
        tokens.verify(token)
    assert len(str(refused.value)) < 200


@given(token=st.text(max_size=200))
def test_any_text_is_refused(token: str) -> None:
    with pytest.raises(Forbidden):
        TokenAuthenticator([], ManualClock()).verify(token)


@pytest.mark.parametrize(
    ("content", "algorithm", "said"),
    [
        (None, "HS256", "file"),
        (b"", "HS256", "at least 32 bytes"),
        (b"short", "HS256", "at least 32 bytes"),
        (b" " * 100, "HS256", "at least 32 bytes"),
        (PEM, "HS256", "PEM"),
        (b"no key at all, but quite long enough", "EdDSA", "PEM"),
        (
            generate_ec_key(SECP256R1())
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "EdDSA",
            "Ed25519",
        ),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_before_anything_starts(
    tmp_path: Path, clock: ManualClock, content: bytes | None, algorithm: Any, said: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as refused:
        TokenAuthenticator([Key(id="main", file=str(file), algorithm=algorithm)], clock)
    assert "access.keys[main]" in str(refused.value)
    if content is not None and content.strip():
        assert content.strip().decode() not in str(refused.value)


def test_two_keys_of_one_id_and_an_app_that_is_no_name_are_refused(
    folder: Path, clock: ManualClock
) -> None:
    key = Key(id="k", file=str(folder / "shop"))
    with pytest.raises(ConfigError, match="two keys"):
        TokenAuthenticator([key, key], clock)
    with pytest.raises(ConfigError, match="app"):
        TokenAuthenticator([Key(id="k", file=str(folder / "shop"), app="No App")], clock)


def _check_no_secret_in(text: str, token: str) -> None:
    for part in (*token.split("."), SECRET.decode(), OTHER_SECRET.decode()):
        assert not part or part not in text
