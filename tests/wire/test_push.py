"""Frames of push: exactly P2, in any pieces, and nothing but an error out of anything else."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import LocalProtocolError, RemoteProtocolError
from chappe.wire.push import (
    COMMANDS,
    FRAME_BYTES_MAX,
    ITEM_BYTES_MAX,
    RESPONSES,
    Auth,
    AuthSuccess,
    Error,
    ExchangeKey,
    Message,
    MessageAck,
    MessageList,
    MessageStruct,
    PushError,
    Splitter,
    Subscribe,
    TopicList,
    decode_command,
    decode_response,
    encode_command,
    encode_response,
    message_frame,
    message_head,
    message_list_frames,
    message_struct,
    parts,
)
from tests.wire.push_vocabulary import (
    LITERAL_COMMANDS,
    LITERAL_RESPONSES,
    ONE,
    ONE_BYTES,
    commands,
    responses,
    structs,
)


def frames(data: bytes) -> list[bytes]:
    return list(Splitter().feed(data))


def cut(data: bytes, at: list[int]) -> list[bytes]:
    ends = [*sorted(n % (len(data) + 1) for n in at), len(data)]
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def test_numbers_are_those_of_the_contract():  # P2
    assert [(kind.__name__, kind.number) for kind in COMMANDS] == [
        ("Auth", 0),
        ("ExchangeKey", 1),
        ("GetTopicList", 2),
        ("Subscribe", 3),
        ("Unsubscribe", 4),
        ("GetMessageList", 5),
        ("Heartbeat", 6),
        ("MessageAck", 7),
    ]
    assert [(kind.__name__, kind.number) for kind in RESPONSES] == [
        ("Ok", 0),
        ("Error", 1),
        ("AuthSuccess", 2),
        ("TopicList", 3),
        ("MessageList", 4),
        ("Message", 5),
    ]
    assert [(code.name, code.value) for code in PushError] == [
        ("TOKEN_EXPIRED", 0),
        ("CLIENT_NOT_FOUND", 1),
        ("DUPLICATE", 2),
        ("SERVER", 3),
        ("BAD_ARGUMENTS", 4),
    ]


@pytest.mark.parametrize(("command", "literal"), LITERAL_COMMANDS)
def test_a_command_is_these_bytes(command, literal):  # P2
    assert encode_command(command) == bytes.fromhex(literal)
    assert list(map(decode_command, frames(bytes.fromhex(literal)))) == [command]


@pytest.mark.parametrize(("response", "literal"), LITERAL_RESPONSES)
def test_a_response_is_these_bytes(response, literal):  # P2
    assert encode_response(response) == bytes.fromhex(literal)
    assert list(map(decode_response, frames(bytes.fromhex(literal)))) == [response]


@given(commands)
def test_commands_come_back_as_they_were(command):
    assert list(map(decode_command, frames(encode_command(command)))) == [command]


@given(responses)
def test_responses_come_back_as_they_were(response):
    assert list(map(decode_response, frames(encode_response(response)))) == [response]


@given(st.lists(responses, max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_any_pieces_give_the_same_frames(some, at):
    splitter = Splitter()
    stream = b"".join(map(encode_response, some))
    seen = [decode_response(f) for piece in cut(stream, at) for f in splitter.feed(piece)]
    assert seen == some


@given(st.lists(commands, min_size=1, max_size=4))
def test_byte_by_byte_gives_every_frame_with_its_last_byte(some):
    splitter = Splitter()
    for command in some:
        data = encode_command(command)
        for byte in data[:-1]:
            assert not list(splitter.feed(bytes([byte])))
        assert [decode_command(f) for f in splitter.feed(data[-1:])] == [command]


@pytest.mark.parametrize(
    ("decode", "literal"),
    [(decode_command, literal) for _, literal in LITERAL_COMMANDS]
    + [(decode_response, literal) for _, literal in LITERAL_RESPONSES],
)
def test_no_part_of_a_frame_is_taken_for_one(decode, literal):
    (frame,) = frames(bytes.fromhex(literal))
    for size in range(len(frame)):
        with pytest.raises(RemoteProtocolError, match=r"^\w+: "):
            decode(frame[:size])
    with pytest.raises(RemoteProtocolError, match="too many"):
        decode(frame + b"\0")


@given(st.binary(max_size=200))
def test_only_a_protocol_error_comes_out_of_garbage(data):
    for decode, encode in ((decode_command, encode_command), (decode_response, encode_response)):
        try:
            read = decode(data)
        except RemoteProtocolError:
            continue
        assert encode(read) == len(data).to_bytes(2) + data


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_a_splitter_makes_frames_of_garbage_or_an_error(chunks):
    splitter = Splitter(50)
    try:
        for chunk in chunks:
            for frame in splitter.feed(chunk):
                assert 0 < len(frame) <= 50
    except RemoteProtocolError as error:
        assert error.reason.startswith("length: ")  # noqa: PT017


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ("", "type: an empty frame"),
        ("08", "type: 8 is no command"),
        ("ff", "type: 255 is no command"),
        ("00 0001", "client_id: cut short, 1 bytes wanted, 0 left"),
        ("00 0001 61 0005 61", "token: cut short, 5 bytes wanted, 1 left"),
        ("00 0001 ff 0000", "client_id: not UTF-8"),
        ("00 0000 0002 c3", "token: cut short"),
        ("01 00", "secret_key: cut short"),
        ("02 00", "GetTopicList: 1 bytes too many"),
        ("03", "topics: cut short"),
        ("03 ff 0000", "topics: cut short, 255 counted, 2 bytes left"),
        ("03 01 0002 61", "topics: cut short"),
        ("07 01 0002 c328", "ids: not UTF-8"),
    ],
)
def test_a_bad_command_is_refused_by_the_name_of_its_field(frame, why):
    with pytest.raises(RemoteProtocolError, match=why):
        decode_command(bytes.fromhex(frame))


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ("06", "type: 6 is no response"),
        ("01", "code: cut short"),
        ("01 03 0001", "reason: cut short"),
        ("04 02 00", "messages: cut short, 2 counted"),
        ("05 00 0000 0000 8000000000000000 0000", "timestamp: -9223372036854775808 is negative"),
        ("05 00 0000 0000 0000000000000000 0001", "encrypted_content: cut short"),
        ("05 00 0000 0001 80 0000000000000000 0000", "job_id: not UTF-8"),
    ],
)
def test_a_bad_response_is_refused_by_the_name_of_its_field(frame, why):
    with pytest.raises(RemoteProtocolError, match=why):
        decode_response(bytes.fromhex(frame))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (Auth("c", "t" * 65_536), "token: 65536 bytes, 65535 are"),
        (Auth("c" * 40_000, "t" * 40_000), "Auth: a frame of 80005 bytes"),
        (Auth("\ud800", ""), "client_id: not UTF-8"),
        (Subscribe(("a", "x" * (ITEM_BYTES_MAX - 1))), "topics: 65534 bytes, 65533 are"),
    ],
)
def test_what_no_frame_holds_is_not_sent(command, why):
    with pytest.raises(LocalProtocolError, match=why):
        encode_command(command)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (Error(256, ""), "code: 256"),
        (Error(-1, ""), "code: -1"),
        (Message(MessageStruct(256, "", "", 0, b"")), "type: 256"),
        (Message(MessageStruct(0, "", "", -1, b"")), "timestamp: -1"),
        (Message(MessageStruct(0, "", "", 2**63, b"")), "timestamp: 9"),
        (AuthSuccess(bytes(65_533)), "AuthSuccess: a frame of 65536 bytes"),
    ],
)
def test_a_response_with_a_value_that_does_not_fit_is_not_sent(response, why):
    with pytest.raises(LocalProtocolError, match=why):
        encode_response(response)


@pytest.mark.parametrize("count", [255, 256, 510, 511, 1000])
def test_a_list_of_more_than_its_count_can_say_is_several_frames(count):  # P2
    ids = tuple(f"p{n}" for n in range(count))
    read = list(map(decode_command, frames(encode_command(MessageAck(ids)))))
    assert tuple(one for ack in read for one in ack.ids) == ids
    assert [len(ack.ids) for ack in read[:-1]] == [255] * (len(read) - 1)
    assert len(read) == -(-count // 255) == len(parts(MessageAck(ids)))


@given(st.lists(st.integers(0, 30_000), max_size=12))
def test_a_list_of_more_bytes_than_a_frame_is_several_frames(sizes):  # P2
    topics = tuple("x" * size for size in sizes)
    data = encode_response(TopicList(topics))
    read = list(map(decode_response, frames(data)))
    assert tuple(t for part in read for t in part.topics) == topics
    assert (len(read) > 1) == (sum(size + 2 for size in sizes) > ITEM_BYTES_MAX)


def test_a_frame_is_filled_to_its_last_byte():
    topics = ("a" * 30_000, "b" * (ITEM_BYTES_MAX - 30_004))
    (frame,) = frames(encode_command(Subscribe(topics)))
    assert len(frame) == FRAME_BYTES_MAX
    longer = (topics[0], topics[1] + "b")
    assert len(frames(encode_command(Subscribe(longer)))) == 2
    (alone,) = frames(encode_command(Subscribe(("a" * (ITEM_BYTES_MAX - 2),))))
    assert len(alone) == FRAME_BYTES_MAX


def test_an_empty_list_is_one_frame():
    assert parts(MessageList(())) == [MessageList(())]
    assert message_list_frames([]) == [bytes.fromhex("0002 04 00")]


@given(st.lists(structs, max_size=6))
def test_messages_encoded_beforehand_make_the_same_frames(some):
    encoded = [message_struct(m.head, m.encrypted_content) for m in some]
    assert b"".join(message_list_frames(encoded)) == encode_response(MessageList(tuple(some)))
    for message, data in zip(some, encoded, strict=True):
        assert message_frame(data) == encode_response(Message(message))


def test_the_head_is_all_before_the_content():
    head = message_head(7, "p01", "j01", 0x0102030405060708)
    assert head == ONE.head == bytes.fromhex(ONE_BYTES)[:-4]


def test_many_large_messages_fill_several_frames():
    structs = [message_struct(message_head(0, f"p{n}", "j", n), bytes(20_000)) for n in range(10)]
    read = [decode_response(f) for data in message_list_frames(structs) for f in frames(data)]
    assert [len(part.messages) for part in read] == [3, 3, 3, 1]
    assert [m.id for part in read for m in part.messages] == [f"p{n}" for n in range(10)]


@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_a_declared_length_above_the_bound_is_refused_when_it_is_known(step):
    splitter, seen = Splitter(100), []
    data = bytes.fromhex("0001 06 0065")

    def feed_all():
        for at in range(0, len(data), step):
            seen.extend(splitter.feed(data[at : at + step]))

    with pytest.raises(RemoteProtocolError, match="length: 101 bytes declared, 100 are") as caught:
        feed_all()
    assert caught.value.close_code == 1009
    if step != 1000:
        assert seen == [b"\x06"]


def test_a_frame_of_no_bytes_is_refused():
    with pytest.raises(RemoteProtocolError, match="length: a frame of 0"):
        frames(bytes.fromhex("0000 06"))


def test_a_frame_of_the_largest_size_passes():
    key = bytes(FRAME_BYTES_MAX - 3)
    assert decode_command(frames(encode_command(ExchangeKey(key)))[0]) == ExchangeKey(key)


def test_a_frame_that_never_ends_holds_no_more_than_the_bound():
    splitter = Splitter()
    tracemalloc.start()
    try:
        list(splitter.feed(b"\xff\xff"))
        for _ in range(65_534):
            assert not list(splitter.feed(b"x"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def test_a_count_of_many_takes_no_memory_before_they_are_there():
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            decode_response(b"\x04\xff" + bytes(100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000
