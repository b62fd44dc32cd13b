"""Avatars: other names of users, given and taken by managers (H14, H15).

Who an avatar belongs to is a record of the directory, so every node knows it. Made in two places at
once for two users, it is the one's whose record stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from chappe.address import parse_address
from chappe.endpoints.directory import Directory
from chappe.endpoints.record import Record
from chappe.errors import BadRequest, Forbidden, Overload
from chappe.hub.grant import Grant
from chappe.hub.hub import Hub
from chappe.hub.requests import Handler
from chappe.hub.session import Session
from chappe.wire.ops import Avatar, Op, Reply

# What a topic has to look through when a user subscribes as each of them.
AVATARS_MAX = 1000


class Avatars:
    """Whose avatars are whose, in every app."""

    def __init__(self, hub: Hub, directory: Directory, avatars_max: int = AVATARS_MAX) -> None:
        self._hub = hub
        self._directory = directory
        self._avatars_max = avatars_max
        # App -> avatar -> user, and app -> user -> its avatars in the order they came.
        self._owners: dict[str, dict[str, str]] = {}
        self._avatars: dict[str, dict[str, dict[str, None]]] = {}
        # Called with app, user and avatar when a user has lost one, wherever that was done.
        self.on_removed: Callable[[str, str, str], None] | None = None
        directory.subscribe("avatar", self._changed)

    def handlers(self) -> dict[type[Op], Handler]:
        """The ops served here."""
        return {Avatar: self.avatar}

    def user_of(self, app: str, avatar: str) -> str | None:
        """The user that an avatar belongs to."""
        owners = self._owners.get(app)
        return None if owners is None else owners.get(avatar)

    def avatars_of(self, app: str, user: str) -> list[str]:
        """A user's avatars, in the order they were made known."""
        return list(self._avatars.get(app, {}).get(user, ()))

    def reduce(self, app: str, addresses: Iterable[str]) -> list[str]:
        """Put users in the place of their avatars, each once and in order (H14).

        An avatar that is nobody's stays, for whoever sends to find that out.
        """
        owners = self._owners.get(app, {})
        return list(dict.fromkeys(owners.get(address, address) for address in addresses))

    def avatar(self, session: Session, op: Avatar) -> None:
        """Add an avatar to a user or remove it, as a session asks; raises RequestError."""
        if parse_address(op.avatar, "avatar").kind != "avatar":
            raise BadRequest("avatar: not an avatar's address, which starts with avatar:")
        if op.do == "add":
            self._add(session.grant, op.avatar, op.user)
        elif op.do == "remove":
            self._remove(session.grant, op.avatar, op.user)
        else:
            raise BadRequest("do: neither add nor remove")
        if op.id is not None:
            self._hub.answer(session, Reply(id=op.id, ok=True))

    def _add(self, grant: Grant, avatar: str, user: str) -> None:
        if avatar not in grant.manage:
            raise Forbidden(f"avatar: {grant.address} does not manage {avatar}")
        kind = parse_address(user, "user").kind
        if kind == "avatar":
            raise BadRequest("user: an avatar has no avatars")
        if kind != "user":
            raise BadRequest(f"user: a {kind} has no avatars")
        owner = self.user_of(grant.app, avatar)
        if owner == user:
            return
        if owner is not None:
            raise Forbidden(f"avatar: {avatar} belongs to another user")
        if len(self._avatars.get(grant.app, {}).get(user, ())) >= self._avatars_max:
            raise Overload(f"user: {user} has {self._avatars_max} avatars already")
        self._directory.put(grant.app, avatar, msgspec.msgpack.encode(user))

    def _remove(self, grant: Grant, avatar: str, user: str) -> None:
        owner = self.user_of(grant.app, avatar)
        # A stranger is told the same whether the avatar is there or not.
        if avatar not in grant.manage and owner != grant.address:
            raise Forbidden(f"avatar: {grant.address} neither manages nor has {avatar}")
        if user and owner is not None and user != owner:
            raise Forbidden(f"avatar: {avatar} belongs to another user")
        self._directory.remove(grant.app, avatar)

    def _changed(self, record: Record) -> None:
        """Follow the directory: a record came to stand, or went."""
        app, avatar = record.app, record.address
        owner = self.user_of(app, avatar)
        user = None if record.value is None else _user(record.value)
        if user == owner:
            return
        if owner is not None:
            self._take_away(app, avatar, owner)
        if user is not None:
            self._owners.setdefault(app, {})[avatar] = user
            self._avatars.setdefault(app, {}).setdefault(user, {})[avatar] = None

    def _take_away(self, app: str, avatar: str, owner: str) -> None:
        owners, users = self._owners[app], self._avatars[app]
        del owners[avatar], users[owner][avatar]
        if not users[owner]:
            del users[owner]
        if not owners:
            del self._owners[app], self._avatars[app]
        if self.on_removed is not None:
            self.on_removed(app, owner, avatar)


def _user(value: bytes) -> str | None:
    """The user in a record; None for one that a later release wrote in another way."""
    try:
        return msgspec.msgpack.decode(value, type=str)
    except msgspec.MsgspecError:
        return None
