"""One table of codes: what is answered, what closes, and whether to come back."""

import re
from pathlib import Path

import pytest

from chappe import errors
from chappe.errors import (
    GIVE_UP,
    BadRequest,
    CloseCode,
    ConnectionClosed,
    ErrorCode,
    FatalRequestError,
    Forbidden,
    Overload,
    ProtocolError,
    RemoteProtocolError,
    RequestError,
    Unreachable,
    request_error,
    should_reconnect,
)

# Written out rather than derived: clients in other languages have this table in their own code.
RECONNECT = {1001, 1011, 1012, 1013, 4004, 4005, 4006, 4007, 4008}
STAY_AWAY = {1000, 1002, 1003, 1007, 1008, 1009, 4000, 4001, 4002, 4003}


def test_every_error_is_a_chappe_error():
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    assert len(kinds) > 8
    for kind in kinds:
        assert issubclass(kind, errors.ChappeError)


def test_the_docstring_draws_every_error_class():
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert name in errors.__doc__


def test_a_reply_says_one_of_four_errors():  # H5
    assert {str(code) for code in ErrorCode} == {
        "unreachable",
        "overload",
        "forbidden",
        "protocol",
    }


def test_every_close_code_is_on_one_side_of_the_split():
    assert {int(code) for code in CloseCode} == RECONNECT | STAY_AWAY
    assert {code for code in CloseCode if code.reconnect} == RECONNECT
    assert set(GIVE_UP) == STAY_AWAY


def test_a_close_code_may_travel_in_a_close_frame():
    for code in CloseCode:
        assert code in {1000, 1001, 1002, 1003, *range(1007, 1015)} or 4000 <= code < 5000


@pytest.mark.parametrize("code", [1006, 1005, 4999, 3000, 0, -1, 65_535])
def test_a_close_code_of_no_table_invites_back(code):
    # 1006 above all: a connection that just broke off.
    assert should_reconnect(code)
    assert ConnectionClosed(code, "").reconnect


def test_a_closed_connection_says_whether_to_reconnect():
    assert ConnectionClosed(1012, "restart").reconnect
    assert not ConnectionClosed(4003, "revoked").reconnect
    assert str(ConnectionClosed(4003, "revoked")) == "4003 revoked"
    assert str(ConnectionClosed(1006, "")) == "1006"


@pytest.mark.parametrize(
    ("code", "kind", "temporary"),
    [
        ("unreachable", Unreachable, False),
        ("overload", Overload, True),
        ("forbidden", Forbidden, False),
        ("protocol", BadRequest, False),
    ],
)
def test_a_reply_becomes_its_typed_error(code, kind, temporary):
    error = request_error(code, "why")
    assert type(error) is kind
    assert error.code == code
    assert error.reason == "why"
    assert error.temporary is temporary
    assert str(error) == f"{code}: why"


def test_an_error_code_of_a_later_version_is_still_a_request_error():
    error = request_error("novelty", "why")
    assert type(error) is RequestError
    assert error.reason == "why"


def test_repeating_helps_against_no_fatal_error():
    for kind in (Forbidden, BadRequest):
        assert issubclass(kind, FatalRequestError)
        assert not kind.temporary
    assert not issubclass(Overload, FatalRequestError)
    assert not issubclass(Unreachable, FatalRequestError)


def test_only_overload_leaves_the_outcome_open():
    assert request_error("overload", "slow", outcome_unknown=True).outcome_unknown
    assert not request_error("overload", "full").outcome_unknown


def test_a_protocol_error_carries_the_code_to_close_with():
    assert RemoteProtocolError("x").close_code == CloseCode.PROTOCOL_ERROR
    error = RemoteProtocolError("x", CloseCode.MESSAGE_TOO_BIG)
    assert isinstance(error, ProtocolError)
    assert (error.reason, error.close_code) == ("x", 1009)


def test_the_reference_lists_every_code_and_whether_to_come_back():
    reference = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
    rows = dict(re.findall(r"^\| (\d{4}) \|[^|]*\| ([^|]*) \|$", reference, re.MULTILINE))
    assert {int(code) for code in rows} >= {int(code) for code in CloseCode}
    for code in CloseCode:
        assert rows[str(int(code))].startswith("reconnects") is code.reconnect, code
    for error in ErrorCode:
        assert f"| `{error}` |" in reference
