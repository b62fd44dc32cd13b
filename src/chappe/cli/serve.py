"""`chappe serve`: run a node."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Annotated

import msgspec
import structlog
import typer
import uvloop
from rich.console import Console
from rich.panel import Panel

from chappe.cli.launching import ClusterSecretFile, Config, Data, Dev, Host
from chappe.node.options import NodeOptions, load_options

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(
    dev: Dev = False,
    config: Config = None,
    host: Host = None,
    port: Annotated[int | None, typer.Option(help="WebSocket port [7400]; 0 picks one.")] = None,
    http_port: Annotated[int | None, typer.Option(help="HTTP port [7401]; 0 picks one.")] = None,
    tcp_port: Annotated[int | None, typer.Option(help="TCP port [7402]; 0 picks one.")] = None,
    comet_port: Annotated[
        int | None, typer.Option(help="Port for devices [7405]; 0 picks one.")
    ] = None,
    data: Data = None,
    registry: Annotated[
        str | None,
        typer.Option(help="memory (the default), redis://, zookeeper:// or kubernetes://."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="sqlite: (the default), sqlite:/file, memory or redis://.")
    ] = None,
    queues: Annotated[
        str | None,
        typer.Option(help="local (the default: a journal in the data folder), redis://."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What other nodes call this one.")] = None,
    cluster_port: Annotated[
        int | None, typer.Option(help="Port for links of other nodes [7403]; 0 picks one.")
    ] = None,
    cluster_secret_file: ClusterSecretFile = None,
    roles: Annotated[
        str | None,
        typer.Option(
            help="Of hub, proxy, broker, router, gateway, comet, web, admin; commas between [all]."
        ),
    ] = None,
    rooms_port: Annotated[
        int | None, typer.Option(help="UDP port for rooms [the next]; 0 picks one.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(help="The broker's partition [one broker for each].")
    ] = None,
    router_partition: Annotated[
        int | None, typer.Option(help="The partition of an independent router.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that share the ports [1].")] = None,
) -> None:
    """Run a node until it is told to stop; SIGTERM drains it."""
    flags = {
        "dev": dev or None,
        "host": host,
        "port": port,
        "http_port": http_port,
        "tcp_port": tcp_port,
        "comet_port": comet_port,
        "data": str(data) if data else None,
        "registry": registry,
        "store": store,
        "queues": queues,
        "name": name,
        "cluster.port": cluster_port,
        "cluster.secret": str(cluster_secret_file) if cluster_secret_file else None,
        "roles": roles,
        "rooms.port": rooms_port,
        "rooms.partition": partition,
        "rooms.router_partition": router_partition,
        # Others have no partitions.
        "rooms.independent_routers": True if router_partition is not None else None,
        "workers": workers,
    }
    options = load_options(config, os.environ, flags)
    log_to_stderr()
    if options.dev:
        warn_loudly(options)
    if options.workers > 1:
        _supervise(options)
    else:
        uvloop.run(_run(options))


def _supervise(options: NodeOptions) -> None:
    from chappe.node.opening import load  # noqa: PLC0415, as below
    from chappe.node.supervisor import Supervisor  # noqa: PLC0415
    from chappe.node.workers import Workers  # noqa: PLC0415

    load(options)
    Supervisor(Workers(options)).run(tell_ready)


async def _run(options: NodeOptions) -> None:
    # Here and not above: the HTTP framework takes longer to import than most commands to run.
    from chappe.node.opening import open_node  # noqa: PLC0415

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    node = open_node(options)
    if await node.start_unless(stop):
        tell_ready(node.addresses())
        await node.run_until(stop)
    # The loop would restore the defaults when it closes: whoever asks twice must not turn a clean
    # exit into a death by signal.
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def tell_ready(addresses: Mapping[str, object]) -> None:
    """Tell whoever waits that traffic is taken, and where."""
    sys.stdout.write(f"ready {msgspec.json.encode(addresses).decode()}\n")
    sys.stdout.flush()


def warn_loudly(options: NodeOptions) -> None:
    """Say that nobody is asked for a token."""
    Console(stderr=True).print(
        Panel(
            "Anybody on this machine may be anybody: a hello needs no token.\n"
            f"Listening on {options.host} only. Never use --dev where strangers can connect.",
            title="DEVELOPMENT MODE",
            style="bold yellow",
            expand=False,
        )
    )


def log_to_stderr(*, lasting: bool = True) -> None:
    """Write what is logged to standard error, with which of several processes said it; for as long
    as the process lives, or, where a command may be one of several in it, until told otherwise."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=lasting,
    )
