"""The command line: `chappe serve`, and what talks to a node."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import structlog
import typer
import uvloop
from rich.console import Console
from rich.panel import Panel

from chappe.errors import ChappeError, ConfigError
from chappe.node.node import Node
from chappe.node.options import NodeOptions, load_options

app = typer.Typer(
    help="A realtime messaging platform: users, topics, queues, rooms and push over one hub.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
errors = Console(stderr=True)


@app.callback()
def _root() -> None:
    """Hold the subcommands together."""


@app.command()
def serve(
    dev: Annotated[
        bool, typer.Option("--dev", help="Loopback only, hello without a token.")
    ] = False,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any option.")] = None,
    host: Annotated[str | None, typer.Option(help="Where to listen [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="WebSocket port [7400]; 0 picks one.")] = None,
    http_port: Annotated[int | None, typer.Option(help="HTTP port [7401]; 0 picks one.")] = None,
    tcp_port: Annotated[int | None, typer.Option(help="TCP port [7402]; 0 picks one.")] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder [.chappe].")] = None,
) -> None:
    """Run a node until it is told to stop; SIGTERM drains it."""
    flags = {
        "dev": dev or None,
        "host": host,
        "port": port,
        "http_port": http_port,
        "tcp_port": tcp_port,
        "data": str(data) if data else None,
    }
    options = load_options(config, os.environ, flags)
    _log_to_stderr()
    if options.dev:
        _warn_loudly(options)
    uvloop.run(_serve(options))


async def _serve(options: NodeOptions) -> None:
    node = Node(options)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await node.start()
    sys.stdout.write(f"ready {msgspec.json.encode(node.addresses()).decode()}\n")
    sys.stdout.flush()
    await stop.wait()
    await node.drain()


def _warn_loudly(options: NodeOptions) -> None:
    errors.print(
        Panel(
            "Anybody on this machine may be anybody: a hello needs no token.\n"
            f"Listening on {options.host} only. Never use --dev where strangers can connect.",
            title="DEVELOPMENT MODE",
            style="bold yellow",
            expand=False,
        )
    )


def _log_to_stderr() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def main() -> None:
    """Run the command line; an error of ours is one line, not a stack trace."""
    try:
        app()
    except ConfigError as error:
        errors.print(f"[bold red]chappe:[/] {error}", highlight=False)
        raise SystemExit(2) from None
    except ChappeError as error:
        errors.print(f"[bold red]chappe:[/] {error}", highlight=False)
        raise SystemExit(1) from None
