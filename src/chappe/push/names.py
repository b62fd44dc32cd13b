"""What apps and devices call things: checked once, where it comes in."""

from __future__ import annotations

import re

from chappe.address import name_fault
from chappe.errors import BadRequest

DEVICE_CHARS_MAX = 128
# What the device of a user of the hub is called: with a space, so that no device is called so.
USER_DEVICE = "user "
# Made by devices themselves, in whatever way: anything that prints.
_DEVICE = re.compile(rf"[!-~]{{1,{DEVICE_CHARS_MAX}}}")
# P5, with the prefix of each kind.
_ID = re.compile(r"([cpmj])[0-9a-z]{2}[0-9a-f]{13}")


def check_device(device: str, field: str = "device") -> str:
    """A device's id; raises BadRequest."""
    if not _DEVICE.fullmatch(device):
        raise BadRequest(
            f"{field}: a device's id is 1 to {DEVICE_CHARS_MAX} visible ASCII characters"
        )
    return device


def check_name(name: str, field: str) -> str:
    """The name of a user or a topic; raises BadRequest."""
    if fault := name_fault(name):
        raise BadRequest(f"{field}: the name {fault}")
    return name


def is_id(text: str, kinds: str) -> bool:
    """Whether it is an id of one of these kinds: what is not, no store need be asked for."""
    found = _ID.fullmatch(text)
    return found is not None and found.group(1) in kinds
