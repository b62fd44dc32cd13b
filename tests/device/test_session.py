"""A device's session without I/O: the flow of P3, and what breaks it."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from chappe.device.note import Note, Retraction
from chappe.device.session import (
    UNANSWERED_MAX,
    Answered,
    Arrived,
    Ended,
    Ready,
    Session,
    State,
)
from chappe.errors import RemoteProtocolError
from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Error,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    Heartbeat,
    Message,
    MessageAck,
    MessageList,
    MessageStruct,
    Ok,
    Splitter,
    Subscribe,
    TopicList,
    decode_command,
    encode_response,
    message_head,
)
from chappe.wire.pushcipher import CometAgreement, Sealing, UntrustedComet

CLIENT = "c1"
IDENTITY = Ed25519PrivateKey.from_private_bytes(b"i" * 32)
PUBLIC = IDENTITY.public_key().public_bytes_raw()


def new_session() -> Session:
    return Session(client=CLIENT, token="t", identity=PUBLIC, private=b"d" * 32)


def sent(session: Session) -> list:
    return [decode_command(frame) for frame in Splitter().feed(session.to_send())]


def hear(session: Session, *responses) -> list:
    return session.receive(b"".join(map(encode_response, responses)))


def ready_session() -> tuple[Session, Sealing]:
    session, comet = new_session(), CometAgreement(CLIENT, b"c" * 32, IDENTITY)
    session.to_send()
    hear(session, AuthSuccess(comet.encrypt_key))
    (exchange,) = sent(session)
    sealing = comet.agree(exchange.secret_key)
    assert hear(session, Ok()) == [Ready()]
    return session, sealing


def sealed(sealing: Sealing, id_: str, content: bytes, type_: int = 1) -> MessageStruct:
    head = message_head(type_, id_, "j1", 7)
    return MessageStruct(type_, id_, "j1", 7, sealing.seal(head, content))


def test_the_flow_is_auth_then_key_then_ready():  # P3
    session, comet = new_session(), CometAgreement(CLIENT, b"c" * 32, IDENTITY)
    assert sent(session) == [Auth(CLIENT, "t")]
    assert not session.open
    assert hear(session, AuthSuccess(comet.encrypt_key)) == []
    (exchange,) = sent(session)
    assert isinstance(exchange, ExchangeKey)
    assert not session.open
    assert hear(session, Ok()) == [Ready()]
    assert session.open
    assert session.to_send() == b""


def test_notes_are_opened_in_lists_and_alone_in_one_order():  # P4
    session, sealing = ready_session()
    session.ask(GetMessageList())
    first, second, third = (sealed(sealing, f"p{n}", b"%d" % n) for n in range(3))
    events = hear(session, MessageList((first, second)), Message(third))
    assert events == [Arrived(Note(f"p{n}", "j1", 1, 7, b"%d" % n)) for n in range(3)]


def test_a_retraction_says_which_note_is_meant():
    session, sealing = ready_session()
    events = hear(session, Message(sealed(sealing, "p9", b"p1", 255)))
    assert events == [Arrived(Retraction("p1", "p9", 7))]


def test_a_retraction_of_garbage_breaks_the_protocol():
    session, sealing = ready_session()
    with pytest.raises(RemoteProtocolError, match="not the id of a note"):
        hear(session, Message(sealed(sealing, "p9", b"\xff", 255)))


def test_answers_are_matched_by_their_order():
    session, _ = ready_session()
    numbers = [session.ask(c) for c in (Subscribe(("a",)), Heartbeat(), MessageAck(("p1",)))]
    assert sent(session) == [Subscribe(("a",)), Heartbeat(), MessageAck(("p1",))]
    events = hear(session, Error(4, "topics: no"), Ok(), Ok())
    assert events == [
        Answered(numbers[0], Error(4, "topics: no")),
        Answered(numbers[1], Ok()),
        Answered(numbers[2], Ok()),
    ]


def test_a_list_may_be_several_frames_and_what_follows_keeps_its_place():
    session, sealing = ready_session()
    session.ask(GetMessageList())
    topics, beat = session.ask(GetTopicList()), session.ask(Heartbeat())
    events = hear(
        session,
        MessageList((sealed(sealing, "p1", b""),)),
        MessageList((sealed(sealing, "p2", b""),)),
        TopicList(("a",)),
        Message(sealed(sealing, "p3", b"")),
        TopicList(("b",)),
        Error(3, "later"),
    )
    assert [event.what.id for event in events if isinstance(event, Arrived)] == ["p1", "p2", "p3"]
    assert [event for event in events if isinstance(event, Answered)] == [
        Answered(topics, TopicList(("a",))),
        Answered(topics, TopicList(("b",))),
        Answered(beat, Error(3, "later")),
    ]


def test_a_list_ends_with_the_answer_to_what_was_asked_next():
    session, _ = ready_session()
    first, beat, second = (session.ask(c) for c in (GetTopicList(), Heartbeat(), GetTopicList()))
    assert hear(session, TopicList(("a",)), Ok(), TopicList(("b",))) == [
        Answered(first, TopicList(("a",))),
        Answered(beat, Ok()),
        Answered(second, TopicList(("b",))),
    ]


@pytest.mark.parametrize("code", [0, 1, 2])
def test_errors_about_the_session_end_it_whatever_was_asked(code):
    session, _ = ready_session()
    session.ask(Heartbeat())
    assert hear(session, Error(code, "why")) == [Ended(code, "why")]
    assert session.state is State.ENDED
    assert hear(session, Ok()) == []


@pytest.mark.parametrize("code", [3, 4, 77])
def test_other_errors_end_it_when_nothing_was_asked(code):
    session, _ = ready_session()
    assert hear(session, Error(code, "why")) == [Ended(code, "why")]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 200])
def test_any_error_before_the_key_ends_it(code):
    session = new_session()
    assert hear(session, Error(code, "why")) == [Ended(code, "why")]


@pytest.mark.parametrize(
    "response",
    [Ok(), TopicList(()), MessageList(()), Message(MessageStruct(1, "p", "j", 1, bytes(16)))],
)
def test_nothing_but_a_key_may_come_before_it(response):  # P3
    session = new_session()
    with pytest.raises(RemoteProtocolError, match="not expected"):
        hear(session, response)


def test_no_message_may_come_before_the_key_is_agreed():  # P3
    session, comet = new_session(), CometAgreement(CLIENT, b"c" * 32, IDENTITY)
    hear(session, AuthSuccess(comet.encrypt_key))
    with pytest.raises(RemoteProtocolError, match="Message is not expected"):
        hear(session, Message(MessageStruct(1, "p", "j", 1, bytes(16))))


@pytest.mark.parametrize("response", [Ok(), TopicList(()), AuthSuccess(b"")])
def test_an_answer_to_nothing_breaks_the_protocol(response):
    session, _ = ready_session()
    with pytest.raises(RemoteProtocolError, match="not expected"):
        hear(session, response)


def test_a_comet_that_the_identity_did_not_sign_is_refused():  # P4
    session = new_session()
    stranger = CometAgreement(CLIENT, b"c" * 32, Ed25519PrivateKey.from_private_bytes(b"x" * 32))
    session.to_send()
    with pytest.raises(UntrustedComet):
        hear(session, AuthSuccess(stranger.encrypt_key))
    # Nothing of the device's went to the stranger.
    assert session.to_send() == b""


def test_a_message_that_was_left_out_is_noticed():
    session, sealing = ready_session()
    sealed(sealing, "p1", b"")
    with pytest.raises(RemoteProtocolError, match="not what the comet sealed"):
        hear(session, Message(sealed(sealing, "p2", b"")))


def test_only_so_much_is_asked_without_an_answer():
    session, _ = ready_session()
    for _ in range(UNANSWERED_MAX):
        session.ask(Heartbeat())
    assert not session.open
    hear(session, Ok())
    assert session.open


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_only_a_protocol_error_comes_out_of_garbage(chunks):
    session, _ = ready_session()
    try:
        for chunk in chunks:
            session.receive(chunk)
    except RemoteProtocolError:
        pass
