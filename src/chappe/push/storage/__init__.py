"""What push remembers, carried to another place: offline, and checked (P14)."""

from chappe.push.storage.copy import Copy, Moved
from chappe.push.storage.sums import Compared

__all__ = ["Compared", "Copy", "Moved"]
