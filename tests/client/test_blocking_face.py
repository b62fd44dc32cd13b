"""The blocking face has the methods of the client, with the same parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from chappe import blocking, client

TWINS = ("Client", "Consumer", "DelayedProducer", "Item", "OneWayProducer", "Producer")
# What only a caller inside the loop has a use for; a blocking client is open when it is made.
ASYNC_ONLY = {"Client": {"open", "drained"}, "Item": {"hand_back"}}


def methods(face: type) -> dict[str, Callable[..., Any]]:
    members = inspect.getmembers(face, inspect.isfunction)
    return {name: method for name, method in members if not name.startswith("_")}


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    given = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in given]


@pytest.mark.parametrize("name", TWINS)
def test_a_class_has_the_methods_of_its_twin_with_the_same_parameters(name: str):
    asynchronous = methods(getattr(client, name))
    threaded = methods(getattr(blocking, name))
    assert threaded.keys() == asynchronous.keys() - ASYNC_ONLY.get(name, set())
    for method, function in threaded.items():
        expected = parameters(asynchronous[method])
        # Only at the end may there be more: a thread cannot be cancelled, so it is given a timeout.
        assert parameters(function)[: len(expected)] == expected, method
