"""`chappe pipeline`: make tables of what happened, and keep them small."""

from chappe.cli.pipeline.commands import app

__all__ = ["app"]
