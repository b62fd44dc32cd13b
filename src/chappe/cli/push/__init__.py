"""`chappe push`: apps, tokens, users, sending, jobs and topics; devices to try them with."""

from chappe.cli.push.commands import app

__all__ = ["app"]
