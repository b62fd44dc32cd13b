"""A message is a value: made once, shared by every receiver."""

import pytest

from chappe.errors import RemoteProtocolError
from chappe.message import Message


def message() -> Message:
    return Message(7, "user:a", "topic:t", 1_700_000_000_000, b"{}")


def test_a_message_is_json_unless_it_says_otherwise():
    assert message().binary is False


def test_a_message_cannot_be_changed_by_one_of_its_receivers():
    with pytest.raises(AttributeError):
        message().payload = b"other"


def test_equal_messages_are_equal():
    assert message() == message()
    assert message() != Message(8, "user:a", "topic:t", 1_700_000_000_000, b"{}")


def test_the_data_of_a_message_is_its_json_value_or_its_bytes():
    assert Message(7, "user:a", "user:b", 1, b'{"a":[1]}').data == {"a": [1]}
    assert Message(7, "user:a", "user:b", 1, b'{"a":[1]}', binary=True).data == b'{"a":[1]}'


@pytest.mark.parametrize("payload", [b"1e999", b"[" * 5_000 + b"]" * 5_000])
def test_data_that_no_value_stands_for_is_the_senders_fault(payload):
    with pytest.raises(RemoteProtocolError, match="data: "):
        _ = Message(7, "user:a", "user:b", 1, payload).data
