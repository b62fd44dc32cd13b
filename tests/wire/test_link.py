"""Proofs and frames of links between nodes, without I/O (H6)."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import RemoteProtocolError
from chappe.wire.link import (
    HEAD_BYTES,
    NONCE_BYTES,
    Accepting,
    Credentials,
    Dialling,
    FrameKind,
    Frames,
    Refused,
    link_key,
    read_pong,
    write_ping,
    write_pong,
)

KEY = link_key(b"s" * 32)
names = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=60)
nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)


def credentials(name: str, incarnation: int = 7, **other: object) -> Credentials:
    values = {"key": KEY, "cluster": "chappe", "name": name, "incarnation": incarnation} | other
    return Credentials(**values)  # type: ignore[arg-type]


def dialling(name: str = "a", *, nonce: bytes = b"d" * 32, expected: str = "b", **other: object):
    return Dialling(credentials(name, **other), nonce, expected=expected, attempt=3)


def accepting(name: str = "b", *, nonce: bytes = b"e" * 32, **other: object) -> Accepting:
    return Accepting(credentials(name, **other), nonce)


def shake(dialler: Dialling, acceptor: Accepting, tamper=lambda number, message: message):
    """Carry the four messages; `tamper` may change each. Returns them as they were sent."""
    said = [dialler.hello()]
    said.append(acceptor.take(tamper(1, said[0])))
    proof = dialler.take(tamper(2, said[1]))
    assert proof is not None
    said.append(proof)
    said.append(acceptor.take(tamper(3, proof)))
    assert dialler.take(tamper(4, said[3])) is None
    return said


@given(names, names, nonces, nonces, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_two_nodes_with_the_same_secret_learn_who_the_other_is(
    name: str, other: str, nonce: bytes, other_nonce: bytes, incarnation: int, attempt: int
):
    if name == other or nonce == other_nonce:
        return
    mine, theirs = credentials(name, incarnation), credentials(other)
    dialler = Dialling(mine, nonce, expected=other, attempt=attempt)
    acceptor = Accepting(theirs, other_nonce)
    shake(dialler, acceptor)
    assert (dialler.peer.name, dialler.peer.incarnation) == (other, 7)
    assert (acceptor.peer.name, acceptor.peer.incarnation) == (name, incarnation)
    assert acceptor.peer.attempt == dialler.peer.attempt == attempt
    assert acceptor.version == dialler.version == 2


@given(st.data())
def test_any_bit_that_flips_on_the_way_is_refused(data: st.DataObject):
    at = data.draw(st.integers(1, 4))

    def flip(number: int, message: bytes) -> bytes:
        if number != at:
            return message
        bit = data.draw(st.integers(0, len(message) * 8 - 1))
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    dialler = dialling()
    with pytest.raises(Refused):
        shake(dialler, accepting(), flip)
    assert dialler.peer is None


@given(st.integers(1, 4), st.data())
def test_a_message_cut_short_or_made_longer_is_refused(at: int, data: st.DataObject):
    def change(number: int, message: bytes) -> bytes:
        if number != at:
            return message
        if data.draw(st.booleans()):
            return message + data.draw(st.binary(min_size=1, max_size=2000))
        return message[: data.draw(st.integers(0, len(message) - 1))]

    with pytest.raises(Refused):
        shake(dialling(), accepting(), change)


@given(st.integers(1, 4), st.binary(max_size=4096))
def test_garbage_is_refused_at_every_step(at: int, garbage: bytes):
    with pytest.raises(Refused):
        shake(dialling(), accepting(), lambda number, message: garbage if number == at else message)


@given(st.integers(3, 4), st.binary(max_size=80))
def test_a_statement_that_makes_no_sense_is_refused_even_with_a_right_proof(at: int, said: bytes):
    def forge(number: int, message: bytes) -> bytes:
        if number != at:
            return message
        before = (message3[1:-32],) if at == 4 else ()
        label = b"chappe link dialler" if at == 3 else b"chappe link acceptor"
        return bytes([at]) + said + dialler._mac(label, *before, said)

    message3 = shake(dialling(), accepting())[2]
    dialler = dialling()
    with pytest.raises(Refused):
        shake(dialler, accepting(), forge)


def test_the_four_messages_are_laid_out_as_written_down():
    def mac(*parts: bytes) -> bytes:
        data = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.new(KEY, data, "sha256").digest()

    d, e = b"d" * 32, b"e" * 32
    of_a = bytes.fromhex("000200000000000000070000000000000003") + b"\x01a\x01b"
    of_b = bytes.fromhex("000200000000000000070000000000000003") + b"\x01b\x01a"
    assert hmac.new(b"s" * 32, b"chappe link key 1", "sha256").digest() == KEY
    assert shake(dialling(nonce=d), accepting(nonce=e)) == [
        b"\x01" + d,
        b"\x02" + e,
        b"\x03" + of_a + mac(b"chappe link dialler", b"chappe", d, e, of_a),
        b"\x04" + of_b + mac(b"chappe link acceptor", b"chappe", d, e, of_a, of_b),
    ]


def refusal(dialler: Dialling, acceptor: Accepting) -> Refused:
    with pytest.raises(Refused) as caught:
        shake(dialler, acceptor)
    return caught.value


def test_another_secret_is_refused_without_a_word_of_why():
    refused = refusal(dialling(key=link_key(b"t" * 32)), accepting())
    assert refused.cause == "secret"
    assert not refused.proven


def test_a_dialler_refuses_an_acceptor_that_does_not_know_the_secret():
    dialler, acceptor = dialling(), accepting()
    dialler.take(acceptor.take(dialler.hello()))
    stranger = shake(dialling(key=link_key(b"t" * 32)), accepting(key=link_key(b"t" * 32)))
    with pytest.raises(Refused, match="another secret"):
        dialler.take(stranger[3])


def test_another_cluster_with_the_same_secret_is_refused():
    assert refusal(dialling(cluster="other"), accepting()).cause == "secret"


def test_a_stranger_gets_a_nonce_and_nothing_else():
    answer = accepting("a-telling-name", nonce=b"n" * 32).take(b"\x01" + b"x" * 32)
    assert answer == b"\x02" + b"n" * 32


def test_what_was_overheard_cannot_be_said_again():
    hello, nonce, proof, answer = shake(dialling(), accepting())
    acceptor = accepting(nonce=b"f" * 32)
    acceptor.take(hello)
    with pytest.raises(Refused, match="replay"):
        acceptor.take(proof)
    dialler = dialling(nonce=b"g" * 32)
    dialler.take(nonce)
    with pytest.raises(Refused, match="replay"):
        dialler.take(answer)


def test_a_dialler_is_not_fooled_by_its_own_words():
    dialler = dialling()
    with pytest.raises(Refused, match="came back") as caught:
        dialler.take(b"\x02" + dialler.hello()[1:])
    assert caught.value.cause == "reflection"
    dialler = dialling()
    proof = dialler.take(b"\x02" + b"x" * 32)
    with pytest.raises(Refused, match="another secret"):
        dialler.take(b"\x04" + proof[1:])


def test_a_proof_that_was_got_from_a_node_does_not_open_that_node():
    # A stranger who is dialled by `a` sends it the nonce that `a` gave it when it dialled `a`.
    dialler, acceptor = dialling("a", expected=""), accepting("a")
    nonce = acceptor.take(dialler.hello())
    with pytest.raises(Refused) as caught:
        acceptor.take(dialler.take(nonce))
    assert caught.value.cause == "itself"


def test_a_proof_for_one_node_does_not_open_another():
    dialler, acceptor = dialling(expected="b"), accepting("c")
    proof = dialler.take(acceptor.take(dialler.hello()))
    with pytest.raises(Refused, match="this is not 'b'"):
        acceptor.take(proof)


def test_a_dialler_refuses_another_node_in_the_place_of_the_one_it_called():
    dialler, other = dialling(expected="b"), dialling(expected="")
    acceptor = accepting("c")
    nonce = acceptor.take(dialler.hello())
    dialler.take(nonce)
    answer = acceptor.take(other.take(nonce))  # as if the first proof had named nobody
    with pytest.raises(Refused):
        dialler.take(answer)


def test_a_node_of_the_same_name_is_refused():
    assert refusal(dialling("b", expected=""), accepting("b", incarnation=8)).cause == "name"


def test_both_sides_take_the_older_version_unless_it_is_too_old():
    dialler, acceptor = dialling(version=5), accepting(version=3)
    shake(dialler, acceptor)
    assert dialler.version == acceptor.version == 3
    assert refusal(dialling(version=1), accepting(version=3, version_min=2)).cause == "version"
    assert refusal(dialling(version=3, version_min=2), accepting(version=1)).cause == "version"


def test_the_key_is_shown_nowhere():
    assert KEY.hex() not in repr(credentials("a"))
    assert repr(KEY) not in repr(credentials("a"))


@given(st.lists(st.tuples(st.sampled_from(list(FrameKind)), st.binary(max_size=100))))
def test_frames_come_out_as_they_went_in(sent: list[tuple[FrameKind, bytes]]):
    out, into = Frames(1024), Frames(1024)
    frames = [out.head(kind) + body for kind, body in sent]
    assert [into.take(memoryview(frame)) for frame in frames] == sent


def test_a_frame_that_comes_again_is_ignored():
    out, into = Frames(1024), Frames(1024)
    first, second = out.head() + b"1", out.head() + b"2"
    assert into.take(first) == (FrameKind.BODY, b"1")
    assert into.take(first) is None
    assert into.take(second) == (FrameKind.BODY, b"2")
    assert into.take(first) is None
    assert into.duplicates == 2


def test_a_gap_ends_a_link():
    out, into = Frames(1024), Frames(1024)
    out.head()
    with pytest.raises(RemoteProtocolError, match="gap: frame 1 came in the place of 0"):
        into.take(out.head() + b"2")


@pytest.mark.parametrize("size", [0, HEAD_BYTES - 1, 1025])
def test_a_frame_that_is_too_small_or_too_large_ends_a_link(size: int):
    with pytest.raises(RemoteProtocolError, match=f"a frame of {size} bytes"):
        Frames(1024).take(bytes(size))


@given(st.floats(allow_nan=False), st.integers(-(2**62), 2**62))
def test_a_pong_brings_back_the_ping_and_a_clock(sent_at: float, wall_us: int):
    assert read_pong(write_pong(write_ping(sent_at), wall_us)) == (sent_at, wall_us)
    # A node of before tells milliseconds, and is told them.
    before = read_pong(write_pong(write_ping(sent_at), wall_us, 1), 1)
    assert before == (sent_at, wall_us // 1000 * 1000)


@given(st.binary(max_size=40))
def test_pings_and_pongs_of_another_size_are_refused(body: bytes):
    if len(body) != 8:
        with pytest.raises(RemoteProtocolError, match="ping"):
            write_pong(body, 0)
    if len(body) != 16:
        with pytest.raises(RemoteProtocolError, match="pong"):
            read_pong(body)
