"""Weights are set in the registry, whoever else sets them."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import ClusterError, Conflict, Overload
from chappe.registry.coordination import Versioned
from chappe.rooms.lookout import read_weights
from chappe.rooms.roll import Weights
from chappe.rooms.weighing import set_weights

PATH = "/pubsub/weights"


class Registry:
    """One value; `others` write before each of the next so many puts."""

    def __init__(self, others=0):
        self.found = None
        self.others = others

    async def get(self, path):
        assert path == PATH
        return self.found

    async def put(self, path, value, version):
        if self.others:
            self.others -= 1
            self._write(b"{}")
        if version != (self.found and self.found.version):
            raise Conflict(path, self.found)
        return self._write(value)

    def _write(self, value):
        self.found = Versioned(value, 1 if self.found is None else self.found.version + 1)
        return self.found


class Away(Registry):
    async def get(self, path):
        raise ClusterError("registry: no answer")


def test_weights_are_read_as_they_were_set_and_set_anew():  # R6
    registry = Registry()
    weights = Weights(proxies={3: 0.5}, brokers={(1 << 32) + 1: 0.0})
    asyncio.run(set_weights(registry, PATH, weights))
    assert read_weights(registry.found) == weights
    asyncio.run(set_weights(registry, PATH, Weights(proxies={4: 2.0})))
    assert read_weights(registry.found) == Weights(proxies={4: 2.0})


def test_somebody_who_writes_at_the_same_time_does_not_hinder():
    registry = Registry(others=2)
    asyncio.run(set_weights(registry, PATH, Weights(proxies={3: 1.0})))
    assert read_weights(registry.found) == Weights(proxies={3: 1.0})


def test_somebody_who_writes_all_the_time_does_but_not_for_ever():
    with pytest.raises(Overload, match="others"):
        asyncio.run(set_weights(Registry(others=100), PATH, Weights()))


def test_a_registry_that_is_away_is_an_overload():
    with pytest.raises(Overload, match="registry"):
        asyncio.run(set_weights(Away(), PATH, Weights()))
