"""A selection: which messages of a queue somebody wants, and as whom."""

from __future__ import annotations

import msgspec

from chappe.client.form import check_text
from chappe.errors import BadRequest
from chappe.wire.ops import Consume, Fetch, Register, Unregister


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A queue, the group one competes in, and what that group wants.

    Any of the tags has to match, and all of the headers. Whoever has a name and no group is a group
    of its own.
    """

    queue: str
    name: str | None = None
    group: str | None = None
    tags: list[str] | None = None
    headers: dict[str, str] | None = None

    def fetch(self, n: int, wait_ms: int) -> Fetch:
        """Ask for messages."""
        return Fetch(
            to=self.queue,
            n=n,
            wait_ms=wait_ms,
            group=self.group,
            tags=self.tags,
            headers=self.headers,
            name=self.name,
        )

    def consume(self, credit: int) -> Consume:
        """Let messages be pushed."""
        return Consume(
            to=self.queue,
            credit=credit,
            group=self.group,
            tags=self.tags,
            headers=self.headers,
            name=self.name,
        )

    def register(self, new: bool) -> Register:
        """Belong to the group by name."""
        return Register(
            to=self.queue,
            name=self.name or "",
            group=self.group,
            tags=self.tags,
            headers=self.headers,
            new=new,
        )

    def unregister(self) -> Unregister:
        """Belong to it no more."""
        return Unregister(to=self.queue, name=self.name or "", group=self.group)


def select(
    queue: str,
    *,
    name: str | None = None,
    group: str | None = None,
    tags: list[str] | None = None,
    headers: dict[str, str] | None = None,
) -> Selection:
    """What a caller said, looked at before it travels; raises BadRequest."""
    given = {"queue": check_text(queue), "name": name, "group": name if group is None else group}
    try:
        return msgspec.convert({**given, "tags": tags, "headers": headers}, Selection)
    except msgspec.ValidationError as error:
        raise BadRequest(f"queue: {error}") from None
