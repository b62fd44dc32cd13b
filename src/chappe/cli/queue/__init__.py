"""`chappe queue`: make queues, send to them, take from them, look into them, move them."""

from chappe.cli.queue.commands import app

__all__ = ["app"]
