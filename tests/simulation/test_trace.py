"""Traces: equal when runs are, different when anything is."""

from __future__ import annotations

import pytest

from chappe.simulation import Trace


def _trace(*events: tuple[str, dict[str, object]]) -> Trace:
    trace = Trace(lambda: 1.5)
    for kind, details in events:
        trace.record(kind, **details)  # type: ignore[arg-type]
    return trace


def test_the_hash_depends_on_every_event_and_their_order():
    one = _trace(("a", {"n": 1}), ("b", {"data": b"xyz"}))
    assert one.digest() == _trace(("a", {"n": 1}), ("b", {"data": b"xyz"})).digest()
    assert one.digest() != _trace(("b", {"data": b"xyz"}), ("a", {"n": 1})).digest()
    assert one.digest() != _trace(("a", {"n": 1}), ("b", {"data": b"xyw"})).digest()
    assert one.digest() != _trace(("a", {"n": "1"}), ("b", {"data": b"xyz"})).digest()


def test_lines_are_bounded_and_the_hash_is_not():
    trace = Trace(lambda: 0.0, lines_max=10)
    before = trace.digest()
    for number in range(100):
        trace.record("event", number=number)
    assert trace.count == 100
    assert len(trace.lines) == 10
    assert trace.lines[-1] == "0.000000000 event number=99"
    assert trace.digest() != before


@pytest.mark.parametrize("value", [object(), {1, 2}, print])
def test_a_detail_that_differs_between_processes_is_refused(value: object):
    with pytest.raises(TypeError):
        _trace(("a", {"value": value}))
