"""Every frame of push, drawn for property tests, and one of each written out by hand."""

from hypothesis import strategies as st

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
    Subscribe,
    TopicList,
    Unsubscribe,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
blob = st.binary(max_size=80)
texts = st.lists(text, max_size=20).map(tuple)
structs = st.builds(MessageStruct, st.integers(0, 255), text, text, st.integers(0, 2**63 - 1), blob)
commands = st.one_of(
    st.builds(Auth, text, text),
    st.builds(ExchangeKey, blob),
    st.just(GetTopicList()),
    st.builds(Subscribe, texts),
    st.builds(Unsubscribe, texts),
    st.just(GetMessageList()),
    st.just(Heartbeat()),
    st.builds(MessageAck, texts),
)
responses = st.one_of(
    st.just(Ok()),
    st.builds(Error, st.integers(0, 255), text),
    st.builds(AuthSuccess, blob),
    st.builds(TopicList, texts),
    st.builds(MessageList, st.lists(structs, max_size=5).map(tuple)),
    st.builds(Message, structs),
)

ONE = MessageStruct(7, "p01", "j01", 0x0102030405060708, b"\xfe\xff")
ONE_BYTES = "07 0003 703031 0003 6a3031 0102030405060708 0002 feff"
LITERAL_COMMANDS = [
    (Auth("c0a", "tök"), "000c 00 0003 633061 0004 74c3b66b"),
    (ExchangeKey(b"\x01\x00\xff"), "0006 01 0003 0100ff"),
    (GetTopicList(), "0001 02"),
    (Subscribe(("a", "bc")), "0009 03 02 0001 61 0002 6263"),
    (Unsubscribe(("a",)), "0005 04 01 0001 61"),
    (Subscribe(()), "0002 03 00"),
    (GetMessageList(), "0001 05"),
    (Heartbeat(), "0001 06"),
    (MessageAck(("p01", "m02")), "000c 07 02 0003 703031 0003 6d3032"),
]
LITERAL_RESPONSES = [
    (Ok(), "0001 00"),
    (Error(2, "duplicate"), "000d 01 02 0009 6475706c6963617465"),
    (AuthSuccess(b"\x01k"), "0005 02 0002 016b"),
    (TopicList(("news",)), "0008 03 01 0004 6e657773"),
    (MessageList((ONE, ONE)), f"0030 04 02 {ONE_BYTES} {ONE_BYTES}"),
    (MessageList(()), "0002 04 00"),
    (Message(ONE), f"0018 05 {ONE_BYTES}"),
]
