"""What a node does: it has clients, it takes part in rooms, in push, or in several of these."""

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
# P1: devices connect to comets, take tokens from web, and are sent notes by admin.
COMET, WEB, ADMIN = "comet", "web", "admin"
PUSH_ROLES = (COMET, WEB, ADMIN)
ALL = (HUB, *ROOM_ROLES, *PUSH_ROLES)


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
    of_rooms = [role for role in given if role in ROOM_ROLES]
    of_push = [role for role in given if role in PUSH_ROLES]
    if of_rooms and of_push and HUB not in given:
        raise ConfigError(
            f"roles: {of_rooms[0]} and {of_push[0]} are in one process only with a hub"
        )


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
    """Raise ConfigError for a node that nobody else is beside, unless it has all roles of rooms or
    none, all of push or none, and clients."""
    for group in (ROOM_ROLES, PUSH_ROLES):
        missing = [role for role in group if role not in roles]
        if missing and len(missing) < len(group):
            raise _nobody_else(missing[0])
    if HUB not in roles and not roles.issuperset(PUSH_ROLES):
        raise _nobody_else(HUB)


def _nobody_else(missing: str) -> ConfigError:
    return ConfigError(
        f"roles: without a registry that others share nobody else could be {missing}; "
        "leave roles out, or name a registry"
    )
