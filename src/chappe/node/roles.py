"""What a node does: it has clients, it takes part in rooms, or both."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.errors import ConfigError
from chappe.wire.rooms import RoleKind

HUB = "hub"
# Those of rooms, by name. Publishers are wherever clients are.
ROOM_ROLES = {
    "proxy": RoleKind.PROXY,
    "broker": RoleKind.BROKER,
    "router": RoleKind.ROUTER,
    "gateway": RoleKind.GATEWAY,
}
ALL = (HUB, *ROOM_ROLES)


def split_roles(text: str) -> list[str]:
    """Roles as a flag or a variable has them, with commas between."""
    return [role for part in text.split(",") if (role := part.strip())]


def check_roles(roles: Iterable[str]) -> None:
    """Raise ConfigError for roles that do not go together; none at all stands for every one."""
    given = tuple(roles)
    for role in given:
        if role not in ALL:
            raise ConfigError(f"roles: {role!r} is none of {', '.join(ALL)}")
    if "gateway" in given and HUB not in given:
        raise ConfigError("roles: a gateway has clients, so it needs a hub: hub,gateway")


def played(roles: Iterable[str]) -> frozenset[str]:
    """The roles that a node has, when it was given these."""
    return frozenset(roles) or frozenset(ALL)


def kinds_of(roles: Iterable[str]) -> frozenset[RoleKind]:
    """What a node of these roles does for rooms."""
    found = {ROOM_ROLES[role] for role in roles if role in ROOM_ROLES}
    if HUB in roles:
        found.add(RoleKind.PUBLISHER)
    return frozenset(found)


def check_alone(roles: frozenset[str]) -> None:
    """Raise ConfigError for a node that nobody else is beside, unless it has clients, and of the
    roles of rooms all or none."""
    missing = [role for role in ALL if role not in roles]
    if missing and roles != {HUB}:
        raise ConfigError(
            f"roles: without a registry that others share nobody else could be {missing[0]}; "
            "leave roles out, or name a registry"
        )
