"""`chappe push jobs` and `job`: what became of what was sent (P9)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from chappe.cli.live import show
from chappe.cli.push.asker import AppAsker, asking
from chappe.cli.push.tables import job_view, jobs_table
from chappe.errors import ConfigError

_PAGE_MAX = 1000
Watch = Annotated[float, typer.Option(help="Show it anew every so many seconds.")]


@asking
def jobs(
    asker: AppAsker,
    count: Annotated[int, typer.Option("--n", "-n", help="So many, the newest first.")] = 20,
    before: Annotated[str | None, typer.Option(help="Those before this job.")] = None,
    watch: Watch = 0.0,
) -> None:
    """List jobs: aimed, sent, arrived, clicked, offline, and their shares."""
    if not 1 <= count <= _PAGE_MAX:
        raise ConfigError(f"--n: must be between 1 and {_PAGE_MAX}")
    node = asker.node()
    show(
        lambda: node.get("/v1/push/jobs", before=before, limit=count),
        jobs_table,
        watch_s=watch,
        as_json=asker.as_json,
    )


@asking
def job(
    asker: AppAsker,
    job: Annotated[str, typer.Argument(help="The job's id.")],
    watch: Watch = 0.0,
) -> None:
    """Show how one job does."""
    node, path = asker.node(), f"/v1/push/jobs/{quote(job, safe='')}"
    show(lambda: node.get(path), job_view, watch_s=watch, as_json=asker.as_json)
