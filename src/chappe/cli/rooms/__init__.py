"""`chappe rooms`: start a layout, double its partitions, see how roles and links do."""

from chappe.cli.rooms.commands import app

__all__ = ["app"]
