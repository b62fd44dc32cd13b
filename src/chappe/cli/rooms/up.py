"""`chappe rooms up`: a layout of rooms as processes of this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from chappe.cli.launching import ClusterSecretFile, Config, Data, Dev, Host
from chappe.cli.serve import log_to_stderr, tell_ready, warn_loudly
from chappe.errors import ConfigError
from chappe.node.layout import Layout
from chappe.node.options import load_options

# Ports of processes that find each other by a registry need not be known to anybody.
_DEFAULTS = {"rooms.port": 0, "cluster.port": 0}


def up(
    dev: Dev = False,
    simple: Annotated[
        bool, typer.Option("--simple", help="1 proxy, 3 brokers, 1 router, 1 gateway [so anyway].")
    ] = False,
    partitions: Annotated[
        int | None, typer.Option(help="Partitions of brokers, a power of two [1].")
    ] = None,
    replicas: Annotated[int | None, typer.Option(help="Brokers of each partition [3].")] = None,
    gateways: Annotated[int | None, typer.Option(help="Nodes for clients [1].")] = None,
    proxies: Annotated[int | None, typer.Option(help="Proxies [1].")] = None,
    routers: Annotated[
        int | None, typer.Option(help="Routers, of each partition if they have any [1].")
    ] = None,
    router_partitions: Annotated[
        int | None, typer.Option(help="Partitions of independent routers [0: they are not].")
    ] = None,
    config: Config = None,
    host: Host = None,
    port: Annotated[int | None, typer.Option(help="The first gateway's [7400].")] = None,
    http_port: Annotated[int | None, typer.Option(help="The first gateway's [7401].")] = None,
    tcp_port: Annotated[int | None, typer.Option(help="The first gateway's [7402].")] = None,
    rooms_port: Annotated[
        int | None, typer.Option(help="The first UDP port; each process has its own [any].")
    ] = None,
    data: Data = None,
    registry: Annotated[
        str | None, typer.Option(help="memory (kept by a process here), redis://, zookeeper://.")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="sqlite: (kept by a process here), memory or redis://.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What names of processes begin with.")] = None,
    cluster_secret_file: ClusterSecretFile = None,
) -> None:
    """Run a layout of rooms until told to stop; what dies is replaced, SIGTERM drains all."""
    layout = _layout(
        simple,
        partitions=partitions,
        replicas=replicas,
        gateways=gateways,
        proxies=proxies,
        routers=routers,
        router_partitions=router_partitions,
    )
    flags = {
        "dev": dev or None,
        "host": host,
        "port": port,
        "http_port": http_port,
        "tcp_port": tcp_port,
        "rooms.port": rooms_port,
        "data": str(data) if data else None,
        "registry": registry,
        "store": store,
        "name": name,
        "cluster.secret": str(cluster_secret_file) if cluster_secret_file else None,
    }
    options = load_options(config, os.environ, flags, _DEFAULTS)
    log_to_stderr()
    if options.dev:
        warn_loudly(options)
    # Here and not above: the HTTP framework takes longer to import than most commands to run.
    from chappe.node.roomscrew import RoomsCrew  # noqa: PLC0415
    from chappe.node.supervisor import Supervisor  # noqa: PLC0415

    Supervisor(RoomsCrew(options, layout)).run(tell_ready)


def _layout(simple: bool, **given: int | None) -> Layout:
    asked = {option: value for option, value in given.items() if value is not None}
    if simple and asked:
        raise ConfigError(f"--simple: not together with --{next(iter(asked)).replace('_', '-')}")
    return Layout(**asked)
