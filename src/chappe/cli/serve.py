"""`chappe serve`: run a node."""

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

from chappe.node.options import NodeOptions, load_options

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(
    dev: Annotated[
        bool, typer.Option("--dev", help="Loopback only; a hello needs no token.")
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
    uvloop.run(_run(options))


async def _run(options: NodeOptions) -> None:
    # Here and not above: the HTTP framework takes longer to import than most commands to run.
    from chappe.node.node import Node  # noqa: PLC0415

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    node = Node(options)
    await node.start()
    sys.stdout.write(f"ready {msgspec.json.encode(node.addresses()).decode()}\n")
    sys.stdout.flush()
    await stop.wait()
    await node.drain()
    # The loop would restore the defaults when it closes: whoever asks twice must not turn a clean
    # exit into a death by signal.
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def _warn_loudly(options: NodeOptions) -> None:
    Console(stderr=True).print(
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
