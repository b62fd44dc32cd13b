"""An order: what an app asks to be sent, to whom, and how."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

import msgspec

from chappe.errors import BadRequest
from chappe.push.admin.options import DeskOptions
from chappe.push.names import check_device, check_name
from chappe.push.note import SYSTEM_TYPES

PRIORITY_MAX = 2
_WORD_CHARS_MAX = 64
_NAME_CHARS_MAX = 255


class Aim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """To whom: clients by their ids, by their devices, by their users; or a topic."""

    clients: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    topic: str | None = None

    @property
    def named(self) -> int:
        """How many are named."""
        return len(self.clients) + len(self.devices) + len(self.users) + (self.topic is not None)

    @property
    def kind(self) -> str:
        """client, device, user, topic, or many."""
        if self.topic is not None:
            return "topic"
        if self.named > 1:
            return "many"
        return "client" if self.clients else "device" if self.devices else "user"

    @property
    def target(self) -> str:
        """Which, or how many."""
        if self.topic is not None:
            return self.topic
        return str(self.named) if self.named > 1 else (*self.clients, *self.devices, *self.users)[0]

    def check(self, most: int) -> None:
        """Raise BadRequest, naming the field, if it makes no sense."""
        if not self.named:
            raise BadRequest("to: a client, a device, a user or a topic is named")
        if self.topic is not None and self.named > 1:
            raise BadRequest("topic: a note goes to a topic or to others, not both")
        if self.named > most:
            raise BadRequest(f"to: {self.named} are named, {most} are allowed")
        for client in self.clients:
            check_device(client, "client")
        for device in self.devices:
            check_device(device)
        for user in self.users:
            check_name(user, "user")
        if self.topic is not None:
            check_name(self.topic, "topic")


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A send, as it is asked for."""

    aim: Aim
    content: bytes
    type: int = 0
    # How long it may wait for its devices.
    ttl_s: int | None = None
    priority: int = 1
    collapse: str | None = None
    once: bool = False
    # What the job is called.
    name: str = ""
    # The same key within a day is the same send (P9).
    repeat: str | None = None

    def check(self, options: DeskOptions) -> None:
        """Raise BadRequest, naming the field, if it makes no sense or is too much."""
        self.aim.check(options.targets_max)
        self.check_note(options)

    def check_note(self, options: DeskOptions) -> None:
        """The same of what is sent, whoever it is for."""
        if not 0 <= self.type < SYSTEM_TYPES:
            raise BadRequest(f"type: 0 to {SYSTEM_TYPES - 1}; above are the system's own")
        if len(self.content) > options.content_bytes_max:
            raise BadRequest(f"data: more than {options.content_bytes_max} bytes")
        if self.ttl_s is not None and not 0 < self.ttl_s <= options.ttl_s_max:
            raise BadRequest(f"ttl_s: must be between 1 and {options.ttl_s_max}")
        if not 0 <= self.priority <= PRIORITY_MAX:
            raise BadRequest(f"priority: 0 to {PRIORITY_MAX}")
        if self.once and self.aim.kind != "user":
            raise BadRequest("once: only of a note to one user")
        _check_word(self.collapse, "collapse")
        _check_word(self.repeat, "idempotency_key")
        if len(self.name) > _NAME_CHARS_MAX:
            raise BadRequest(f"name: more than {_NAME_CHARS_MAX} characters")

    def digest(self) -> str:
        """Tells two orders apart."""
        return b64encode(sha256(msgspec.msgpack.encode(self)).digest()).decode()


def _check_word(word: str | None, field: str) -> None:
    if word is not None and not (0 < len(word) <= _WORD_CHARS_MAX and word.isprintable()):
        raise BadRequest(f"{field}: 1 to {_WORD_CHARS_MAX} characters that print")
