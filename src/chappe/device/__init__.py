"""The Python SDK for devices: gets what is pushed."""

from chappe.device.device import Device
from chappe.device.ending import Closed, DeviceEnded, Replaced
from chappe.device.grant import Grant, decode_grant
from chappe.device.note import Note, Retraction
from chappe.device.options import DeviceOptions
from chappe.wire.pushcipher import UntrustedComet

__all__ = [
    "Closed",
    "Device",
    "DeviceEnded",
    "DeviceOptions",
    "Grant",
    "Note",
    "Replaced",
    "Retraction",
    "UntrustedComet",
    "decode_grant",
]
