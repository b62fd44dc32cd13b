"""Weights are set in the registry, whoever else sets them."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import BadRequest, ClusterError, Conflict, Overload
from chappe.registry.coordination import Versioned
from chappe.rooms.lookout import read_weights
from chappe.rooms.roll import EMPTY, Place, Roll, Seat, Weights
from chappe.rooms.weighing import (
    NamedWeights,
    check_known,
    find_unknown,
    resolve,
    set_weights,
    without,
)
from tests.rooms.rig import seats

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


ROLL = Roll(proxies=seats(3, 4), brokers={0: seats(7), 1: seats(8, 9)}, partitions=2)


def test_weights_of_whoever_is_there_are_well_of_whatever_partition():
    check_known(Weights(proxies={4: 0.0}, brokers={7: 1.0, 9: 2.0}), ROLL)
    check_known(Weights(), ROLL)


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (Weights(proxies={3: 1.0, 7: 1.0}), "proxies: there is no proxy 7 (but 3, 4)"),
        (Weights(brokers={4: 1.0, 3: 1.0}), "brokers: there is no broker 3, 4 (but 7, 8, 9)"),
        (Weights(brokers=dict.fromkeys(range(100, 200), 1.0)), "198, 199 (but 7, 8, 9)"),
        (Weights(brokers=dict.fromkeys(range(100, 209), 1.0)), "199 and 9 more (but 7, 8, 9)"),
        (
            Weights(proxies={5: 1.0}, brokers={6: 1.0}),
            "proxies: there is no proxy 5 (but 3, 4); brokers: there is no broker 6 (but 7, 8, 9)",
        ),
    ],
)
def test_ids_that_nobody_has_are_refused_by_field_and_name(weights, reason):
    with pytest.raises(BadRequest) as refused:
        check_known(weights, ROLL)
    assert reason in refused.value.reason


def test_weights_of_the_others_may_be_set_without_those_that_nobody_has():
    weights = Weights(proxies={3: 1.0, 7: 2.0}, brokers={9: 0.0, 4: 1.0, 3: 1.0})
    unknown = find_unknown(weights, ROLL)
    assert unknown == ([7], [3, 4])
    assert without(weights, unknown) == Weights(proxies={3: 1.0}, brokers={9: 0.0})


def test_before_anybody_is_known_nobody_is_said_to_be_missing():
    with pytest.raises(Overload, match="does not know yet"):
        check_known(Weights(proxies={3: 1.0}), EMPTY)
    with pytest.raises(Overload, match="does not know yet"):
        find_unknown(Weights(proxies={3: 1.0}), EMPTY)
    check_known(Weights(), EMPTY)


def named(name: str, *ids: int) -> tuple[Seat, ...]:
    return tuple(Seat(id_, Place(name=name, host="h", port=1)) for id_ in ids)


NAMED = Roll(
    proxies=named("back-1", 3) + named("back-2", 4),
    brokers={0: named("back-1", 7) + named("one", 8), 1: named("back-1", 9)},
    partitions=2,
)


def test_a_name_stands_for_the_one_that_has_it_and_an_id_for_itself():
    given = NamedWeights(proxies={"back-2": 0.0, "3": 1.0}, brokers={"one": 2.0})
    weights, unknown = resolve(given, NAMED, ignore=False)
    assert weights == Weights(proxies={4: 0.0, 3: 1.0}, brokers={8: 2.0})
    assert unknown == ([], [])


def test_names_and_ids_that_nobody_has_may_be_ignored():
    given = NamedWeights(proxies={"back-2": 0.0, "nobody": 1.0, "77": 1.0}, brokers={"none": 2.0})
    weights, unknown = resolve(given, NAMED, ignore=True)
    assert weights == Weights(proxies={4: 0.0})
    assert unknown == ([77, "nobody"], ["none"])


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (NamedWeights(brokers={"back-1": 0}), "brokers: back-1 is the name of 2; say which: 7, 9"),
        (NamedWeights(proxies={"one": 1}), "proxies: there is no proxy one (but 3, 4)"),
        (NamedWeights(proxies={"3": 1, "back-1": 0}), "proxies: back-1 has another weight"),
        (NamedWeights(proxies={"5": 1}), "proxies: there is no proxy 5 (but 3, 4)"),
        (NamedWeights(proxies={"x" * 9999: 1}), f"there is no proxy {'x' * 100} (but"),
        (NamedWeights(proxies={"9" * 9999: 1}), f"there is no proxy {'9' * 100} (but"),
    ],
)
def test_names_that_say_nobody_or_several_are_refused(weights, reason):
    with pytest.raises(BadRequest) as refused:
        resolve(weights, NAMED, ignore=False)
    assert reason in refused.value.reason


def test_before_anybody_is_known_no_name_is_said_to_be_missing():
    with pytest.raises(Overload, match="does not know yet"):
        resolve(NamedWeights(proxies={"back-1": 1.0}), EMPTY, ignore=True)
