"""The device port: connections of devices to a comet, and nothing else (P1, P13)."""

from chappe.edge.device.connection import DevicePort
from chappe.edge.device.polled import PolledPort, open_port

__all__ = ["DevicePort", "PolledPort", "open_port"]
