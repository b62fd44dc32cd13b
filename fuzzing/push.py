"""Push: the device port reads strangers' commands, a device a stranger's responses and keys."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Command,
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
    Response,
    Splitter,
    Subscribe,
    TopicList,
    Unsubscribe,
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from chappe.wire.pushcipher import CometAgreement, DeviceAgreement

_CLIENT = "c010000065f2c3d4"
_MESSAGE = MessageStruct(1, "p01", "j01", 1_700_000_000_000, b"\x00" * 20)
_COMMANDS: tuple[Command, ...] = (
    Auth(_CLIENT, "t" * 43),
    ExchangeKey(b"\x01" * 33),
    GetTopicList(),
    Subscribe(("news", "é")),
    Unsubscribe(("news",)),
    GetMessageList(),
    Heartbeat(),
    MessageAck(("p01", "m02")),
)
_RESPONSES: tuple[Response, ...] = (
    Ok(),
    Error(4, "topics: too many"),
    AuthSuccess(b"\x01" * 97),
    TopicList(("news", "é")),
    MessageList((_MESSAGE, _MESSAGE)),
    Message(_MESSAGE),
)


def read_push_command(data: bytes) -> None:
    """What was read is written as the same bytes: there is one way to say a thing."""
    assert encode_command(decode_command(data)) == len(data).to_bytes(2) + data


def read_push_response(data: bytes) -> None:
    """Likewise."""
    assert encode_response(decode_response(data)) == len(data).to_bytes(2) + data


def split_push(data: bytes) -> None:
    """A first byte says in what pieces the others come."""
    step = max(1, data[0]) if data else 1
    splitter = Splitter(4096)
    for at in range(1, len(data), step):
        for frame in splitter.feed(data[at : at + step]):
            assert 0 < len(frame) <= 4096


def agree_with_comet(data: bytes) -> None:
    """No comet's part is taken but the one that the identity signed."""
    comet, device = _agreements()
    device.agree(data)
    assert data == comet.encrypt_key


def agree_with_device(data: bytes) -> None:
    """Any point may be a device's; what comes of it seals, and nothing else opens it."""
    comet, device = _agreements()
    sealed = comet.agree(data).seal(b"head", b"content")
    opened = device.agree(comet.encrypt_key)
    assert data != device.secret_key or opened.open(b"head", sealed) == b"content"


def _agreements() -> tuple[CometAgreement, DeviceAgreement]:
    identity = Ed25519PrivateKey.from_private_bytes(b"i" * 32)
    public = identity.public_key().public_bytes_raw()
    comet = CometAgreement(_CLIENT, b"c" * 32, identity)
    return comet, DeviceAgreement(_CLIENT, b"d" * 32, public)


PUSH_COMMANDS = tuple(encode_command(command)[2:] for command in _COMMANDS)
PUSH_RESPONSES = tuple(encode_response(response)[2:] for response in _RESPONSES)
PUSH_STREAMS = (
    b"\x05" + b"".join(map(encode_command, _COMMANDS)),
    b"\xff" + b"".join(map(encode_response, _RESPONSES)),
)
COMET_PARTS = (_agreements()[0].encrypt_key,)
DEVICE_PARTS = (_agreements()[1].secret_key,)
