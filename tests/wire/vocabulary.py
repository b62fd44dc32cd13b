"""Strategies for every op of the vocabulary, in the JSON form; the packed form is made from it."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import msgspec
from hypothesis import strategies as st

from chappe.message import Message
from chappe.wire.ops import CODES, UNSET, Op, Reply, Send

KINDS = sorted(CODES, key=CODES.__getitem__)

int64 = st.integers(-(2**63), 2**63 - 1)
# No surrogates: they exist in no UTF-8 text. Everything else may come, quotes and backslashes more
# often than chance would have it.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20) | st.text(
    st.sampled_from('"\\/\u2028é\U0001f600\x00\n'), max_size=8
)
json_values = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
json_payloads = json_values.map(
    lambda value: json.dumps(value, ensure_ascii=False).encode()
) | json_values.map(lambda value: json.dumps(value, indent=1).encode())

messages = st.builds(
    Message,
    id=st.integers(1, 2**63 - 1),
    sender=texts,
    to=texts,
    ts_ms=st.integers(0, 2**53),
    payload=json_payloads,
    offset=st.just(0) | int64,
) | st.builds(
    Message,
    id=st.integers(1, 2**63 - 1),
    sender=texts,
    to=texts,
    ts_ms=st.integers(0, 2**53),
    payload=st.binary(max_size=300),
    binary=st.just(True),
    offset=st.just(0) | int64,
)

# What a delivery says of a message that did not come from a queue.
NO_QUEUE: dict[str, Any] = {
    **dict.fromkeys(("key", "headers", "tags", "num", "type", "group")),
    "attempt": 1,
}

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "headers": st.dictionaries(texts, texts, max_size=3),
    **dict.fromkeys(("tags", "consumers"), st.lists(texts, max_size=3)),
    **dict.fromkeys(("members", "notes"), st.lists(texts, max_size=3)),
    "messages": st.lists(texts | int64, max_size=3),
    "message": texts | int64,
    "ok": st.booleans(),
    "reliable": st.booleans(),
    "online": st.booleans(),
    "heartbeat_s": st.floats(0, 1e6),
    **dict.fromkeys(("id", "v", "n", "wait_ms", "credit", "ts", "after_ms", "code"), int64),
    **dict.fromkeys(("delay_ms", "seq", "num", "nodes", "offset", "timeout_ms"), int64),
    **dict.fromkeys(("history", "depth_max", "bytes_max", "attempts_max"), int64),
    **dict.fromkeys(("type", "attempt", "lane", "after", "lanes"), int64),
    **dict.fromkeys(("recovered", "idempotent", "anonymous", "volatile"), st.booleans()),
    **dict.fromkeys(("ordered", "new", "reverse", "dead", "delayed", "force"), st.booleans()),
    **dict.fromkeys(("history_s", "ack_timeout_s", "retry_s"), st.floats(0, 1e6)),
    **dict.fromkeys(("retry_max_s", "await_s", "push_interval_s"), st.floats(0, 1e6)),
    "expire_s": st.floats(0, 1e6),
    "verdicts": st.dictionaries(texts, texts, max_size=3),
}


def _field(op: type[Op], name: str) -> st.SearchStrategy[Any]:
    default = next(f.default for f in msgspec.structs.fields(op) if f.name == name)
    if op is Send and name == "to":
        return texts | st.lists(texts, max_size=3)
    if op is Reply and name == "id":
        return int64
    if op is Reply and name == "lanes":
        return st.none() | st.lists(int64, max_size=3)
    values = _FIELDS.get(name, texts)
    return st.none() | values if default is None else values


@st.composite
def ops(draw: Any, kind: type[Op] | None = None) -> Op:
    """Any op, or any of one kind, each field absent or of any value its type allows."""
    op = kind or draw(st.sampled_from(KINDS))
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(op):
        if field.name in ("data", "data64"):
            continue
        if not field.required and draw(st.booleans()):
            continue
        values[field.name] = draw(_field(op, field.name))
    if "data" in op.__struct_fields__:
        match draw(st.sampled_from(["absent", "json", "binary"])):
            case "json":
                values["data"] = msgspec.Raw(draw(json_payloads))
            case "binary":
                values["data64"] = b64encode(draw(st.binary(max_size=40))).decode()
    return op(**values)


def plain(op: Op) -> dict[str, Any]:
    """The fields of an op for comparing: payloads as (bytes, binary), in either form."""
    fields = {name: getattr(op, name) for name in op.__struct_fields__}
    if "data" in fields:
        data, data64 = fields.pop("data"), fields.pop("data64")
        if isinstance(data, msgspec.Raw):
            fields["payload"] = (bytes(data), False)
        elif isinstance(data, bytes):
            fields["payload"] = (data, data64)
        elif isinstance(data64, str):
            fields["payload"] = (msgspec.json.decode(f'"{data64}"', type=bytes), True)
        else:
            assert data in (None, UNSET)
            fields["payload"] = None
    return fields
