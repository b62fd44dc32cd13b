"""The published test vectors of push: `python -m tests.wire.push_vectors` prints them anew.

All keys are fixed and known to everybody: they are for tests only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Error,
    ExchangeKey,
    Frame,
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
    encode_command,
    encode_response,
    message_head,
)
from chappe.wire.pushcipher import CometAgreement, DeviceAgreement, Sealing
from tests.wire.rfc import x25519, x25519_public

VECTORS = Path(__file__).parents[2] / "docs" / "push-vectors.json"

CLIENT, TOKEN = "c010000065f2c3d4", "dGhpcyBpcyBhIHRva2VuIGZvciB0ZXN0cyBvbmx5ISE"
IDENTITY, COMET, DEVICE = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
CONTENTS = (
    (1, "p010000065f2c3d5", "j010000065f2c3d5", 1_710_408_661_123, '{"title":"Grüße"}'.encode()),
    (255, "p010000165f2c3d5", "j010000165f2c3d5", 1_710_408_661_124, b"p010000065f2c3d5"),
)
REFUSED = {
    "command": (
        ("", "no type"),
        ("08", "no such command"),
        ("0000016100056d", "the token is cut short"),
        ("000001ff0000", "the client_id is not UTF-8"),
        ("0200", "a byte too many"),
        ("03ff0000", "255 topics are counted, one is there"),
    ),
    "response": (
        ("06", "no such response"),
        ("0103", "the reason is missing"),
        ("040200", "two messages are counted, none is there"),
        ("050000000000800000000000000000" + "00", "the timestamp is negative"),
    ),
}


def agreements() -> tuple[CometAgreement, DeviceAgreement]:
    """Both sides, before either has heard of the other."""
    identity = Ed25519PrivateKey.from_private_bytes(IDENTITY)
    public = identity.public_key().public_bytes_raw()
    return CometAgreement(CLIENT, COMET, identity), DeviceAgreement(CLIENT, DEVICE, public)


def vectors() -> dict[str, Any]:
    """All of them."""
    comet, device = agreements()
    messages = list(_sealed(comet.agree(device.secret_key)))
    structs = tuple(struct for struct, _ in messages)
    return {
        "about": "Test vectors of the push protocol (docs/push-protocol.md). All bytes are hex. "
        "A frame is length, type and body. The keys are for tests only.",
        "commands": [_frame(c, encode_command(c)) for c in _commands(device.secret_key)],
        "responses": [_frame(r, encode_response(r)) for r in _responses(comet, structs)],
        "agreement": _agreement(comet, device),
        "messages": [about for _, about in messages],
        "refused": [
            {"as": what, "frame_without_length": frame, "why": why}
            for what, all_of_it in REFUSED.items()
            for frame, why in all_of_it
        ],
    }


def _commands(secret_key: bytes) -> Iterable[Any]:
    yield Auth(CLIENT, TOKEN)
    yield ExchangeKey(secret_key)
    yield GetTopicList()
    yield Subscribe(("news", "wetter/zürich"))
    yield Unsubscribe(("news",))
    yield GetMessageList()
    yield Heartbeat()
    yield MessageAck(tuple(content[1] for content in CONTENTS))


def _responses(comet: CometAgreement, structs: tuple[MessageStruct, ...]) -> Iterable[Any]:
    yield Ok()
    yield Error(0, "token: expired")
    yield AuthSuccess(comet.encrypt_key)
    yield TopicList(("news", "wetter/zürich"))
    yield MessageList(structs)
    yield MessageList(())
    # Sent instead of the list: a message alone is counted as one in a list is.
    yield Message(structs[0])


def _frame(frame: Frame, data: bytes) -> dict[str, Any]:
    fields = {name: _shown(getattr(frame, name)) for name in frame.__struct_fields__}
    name = re.sub("(?<!^)(?=[A-Z])", "_", type(frame).__name__).lower()
    return {"name": name, "fields": fields, "frame": data.hex()}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_shown(item) for item in value]
    if isinstance(value, MessageStruct):
        return {name: _shown(getattr(value, name)) for name in value.__struct_fields__}
    return value


def joined(*fields: bytes) -> bytes:
    """Fields that are each preceded by their length."""
    return b"".join(len(field).to_bytes(2) + field for field in fields)


def _agreement(comet: CometAgreement, device: DeviceAgreement) -> dict[str, Any]:
    public, signature = comet.encrypt_key[1:33], comet.encrypt_key[33:]
    client = CLIENT.encode()
    identity = Ed25519PrivateKey.from_private_bytes(IDENTITY).public_key().public_bytes_raw()
    transcript = joined(b"chappe push 1 transcript", client, comet.encrypt_key, device.secret_key)
    return {
        "client_id": CLIENT,
        "identity_private": IDENTITY.hex(),
        "identity_public": identity.hex(),
        "comet_private": COMET.hex(),
        "comet_public": public.hex(),
        "signed": joined(b"chappe push 1 comet key", b"\1", client, public).hex(),
        "signature": signature.hex(),
        "encrypt_key": comet.encrypt_key.hex(),
        "device_private": DEVICE.hex(),
        "device_public": device.secret_key[1:].hex(),
        "secret_key": device.secret_key.hex(),
        "transcript": transcript.hex(),
        "salt": sha256(transcript).hexdigest(),
        "info": b"chappe push 1 server to device".hex(),
        "shared": _shared().hex(),
        "key": comet.agree(device.secret_key).key.hex(),
    }


def _shared() -> bytes:
    return x25519(COMET, x25519_public(DEVICE))


def _sealed(sealing: Sealing) -> Iterable[tuple[MessageStruct, dict[str, Any]]]:
    for counter, (type_, id_, job, ts, content) in enumerate(CONTENTS):
        head = message_head(type_, id_, job, ts)
        struct = MessageStruct(type_, id_, job, ts, sealing.seal(head, content))
        yield (
            struct,
            {
                "counter": counter,
                "nonce": (bytes(4) + counter.to_bytes(8)).hex(),
                "head": head.hex(),
                "content": content.hex(),
                "encrypted_content": struct.encrypted_content.hex(),
                "frame": encode_response(Message(struct)).hex(),
            },
        )


def written() -> str:
    """The file's text."""
    return json.dumps(vectors(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(written())
