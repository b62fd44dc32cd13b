"""Setting weights: how much each proxy and broker is given, as somebody outside has found (R6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import msgspec

from chappe.errors import BadRequest, ClusterError, Conflict, Overload
from chappe.registry.coordination import Coordination
from chappe.rooms.roll import EMPTY, Roll, Seat, Weights

_TOO_EARLY = "rooms: this node does not know yet which proxies and brokers there are"
# Others that write at the same time; more than that is no accident.
_TRIES = 5
# Ids that a refusal names of each role, as unknown and as known; a request may bring thousands.
_UNKNOWN_MAX = 100
_KNOWN_MAX = 10
# Of a name that nobody has, so much is said.
_NAME_MAX = 100
# More than any registry gives.
_ID_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class NamedWeights:
    """How much each proxy and broker is to be given, by its id or by its node's name."""

    proxies: Mapping[str, float] = field(default_factory=dict)
    brokers: Mapping[str, float] = field(default_factory=dict)


class Unknown(NamedTuple):
    """Ids, in order, and names that nobody has: their weights would wait for somebody in vain."""

    proxies: list[int | str]
    brokers: list[int | str]


def resolve(named: NamedWeights, roll: Roll, *, ignore: bool) -> tuple[Weights, Unknown]:
    """Find out whose weights these are, and who of them is not there; a decimal number is an id.

    Raises BadRequest for names that several have, and for who is not there unless that is to be
    ignored; Overload while nobody is known yet.
    """
    if roll is EMPTY and (named.proxies or named.brokers):
        raise Overload(_TOO_EARLY)
    brokers = tuple(chain.from_iterable(roll.brokers.values()))
    proxies_of, no_proxies = _resolved("proxies", named.proxies, roll.proxies)
    brokers_of, no_brokers = _resolved("brokers", named.brokers, brokers)
    weights = Weights(proxies=proxies_of, brokers=brokers_of)
    ids = find_unknown(weights, roll)
    unknown = Unknown([*ids.proxies, *no_proxies], [*ids.brokers, *no_brokers])
    if not ignore:
        _refuse(unknown, roll)
    return without(weights, unknown), unknown


def _resolved(
    where: str, named: Mapping[str, float], seats: Iterable[Seat]
) -> tuple[dict[int, float], list[str]]:
    """Weights by id, and the names that nobody has."""
    ids: dict[str, set[int]] = {}
    for seat in seats:
        ids.setdefault(seat.name, set()).add(seat.id)
    weights: dict[int, float] = {}
    nobodys: list[str] = []
    for name, weight in named.items():
        found = {int(name)} if _is_id(name) else ids.get(name, set())
        if len(found) > 1:
            which = _known(found)
            raise BadRequest(f"{where}: {name} is the name of {len(found)}; say which: {which}")
        if not weights.keys().isdisjoint(found):
            raise BadRequest(f"{where}: {name[:_NAME_MAX]} has another weight there already")
        weights.update(dict.fromkeys(found, weight))
        nobodys += () if found else (name[:_NAME_MAX],)
    return weights, nobodys


def _is_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= _ID_DIGITS_MAX


def find_unknown(weights: Weights, roll: Roll) -> Unknown:
    """The ids that nobody has; raises Overload while nobody is known yet."""
    if roll is EMPTY and (weights.proxies or weights.brokers):
        raise Overload(_TOO_EARLY)
    return Unknown(
        [*sorted(weights.proxies.keys() - _proxies(roll))],
        [*sorted(weights.brokers.keys() - _brokers(roll))],
    )


def check_known(weights: Weights, roll: Roll) -> None:
    """Raise BadRequest that names ids that nobody has; raises Overload as `find_unknown` does."""
    _refuse(find_unknown(weights, roll), roll)


def _refuse(unknown: Unknown, roll: Roll) -> None:
    reasons = [
        f"{field}: there is no {role} {_named(ids, _UNKNOWN_MAX)} (but {_known(there)})"
        for field, role, ids, there in (
            ("proxies", "proxy", unknown.proxies, _proxies(roll)),
            ("brokers", "broker", unknown.brokers, _brokers(roll)),
        )
        if ids
    ]
    if reasons:
        raise BadRequest("; ".join(reasons))


def without(weights: Weights, unknown: Unknown) -> Weights:
    """Weights of those that are there."""
    gone_proxies, gone_brokers = set(unknown.proxies), set(unknown.brokers)
    return Weights(
        proxies={id_: of for id_, of in weights.proxies.items() if id_ not in gone_proxies},
        brokers={id_: of for id_, of in weights.brokers.items() if id_ not in gone_brokers},
    )


def _proxies(roll: Roll) -> set[int]:
    return {seat.id for seat in roll.proxies}


def _brokers(roll: Roll) -> set[int]:
    return {seat.id for seats in roll.brokers.values() for seat in seats}


def _known(there: set[int]) -> str:
    return _named(sorted(there), _KNOWN_MAX) if there else "nobody"


def _named(ids: Sequence[int | str], most: int) -> str:
    first = ", ".join(map(str, ids[:most]))
    return first if len(ids) <= most else f"{first} and {len(ids) - most} more"


async def set_weights(coordination: Coordination, path: str, weights: Weights) -> None:
    """Write weights in place of those that are there; raises Overload when the registry is away."""
    value = msgspec.json.encode(weights)
    try:
        found = await coordination.get(path)
        for _ in range(_TRIES):
            try:
                await coordination.put(path, value, None if found is None else found.version)
            except Conflict:
                found = await coordination.get(path)
            else:
                return
    except ClusterError as error:
        raise Overload(f"rooms: the registry took no weights: {error}") from None
    raise Overload("rooms: others set weights too; try again")
