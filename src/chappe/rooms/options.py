"""Options of rooms, and every bound."""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from chappe.errors import ConfigError
from chappe.rooms.partition import PARTITIONS_MAX

# What a datagram holds, headers of IP and UDP not counted: an Ethernet frame less a tunnel's share.
MTU = 1400
_SYSTEM = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How links are tried out (R15)."""

    # 0: not at all.
    every_s: float = 1.0
    # What has not arrived by then has failed.
    timeout_s: float = 1.0
    # So many failures of one link, one after the other, and somebody is told.
    alarm_failures: int = 5
    # The least share of messages that is to arrive. Who runs over links that lose more, and knows
    # it, sets less, and is told only when it gets worse.
    sla: float = 0.99
    # Measurements kept of each link: percentiles are of these.
    samples_max: int = 600
    # Links looked at, the ones longest unheard of are forgotten first.
    links_max: int = 4096
    # Probes that a process sends every `every_s`; where there are more ways, it takes turns.
    round_max: int = 256
    # Told of each alarm by a POST; nobody if empty.
    webhook: str = ""
    # A file with 32 bytes or more that sign what is told, as with hooks of apps.
    webhook_secret_file: str = ""
    # Which nodes fail is nobody else's business: beyond loopback it is told by TLS.
    webhook_plaintext: bool = False

    def __post_init__(self) -> None:
        # So written, NaN is refused as well.
        if not 0 <= self.every_s < math.inf:
            raise ConfigError("rooms.probe.every_s: must be 0 or above, and finite")
        if not 0 < self.timeout_s < math.inf:
            raise ConfigError("rooms.probe.timeout_s: must be above 0, and finite")
        if not 0 < self.sla <= 1:
            raise ConfigError("rooms.probe.sla: must be above 0, and at most 1")
        for name in ("alarm_failures", "samples_max", "links_max", "round_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"rooms.probe.{name}: must be at least 1")
        if self.webhook and not self.webhook.startswith(("http://", "https://")):
            raise ConfigError("rooms.probe.webhook: must begin with http:// or https://")
        if self.webhook and not self.webhook_secret_file:
            raise ConfigError("rooms.probe.webhook_secret_file: what is told has to be signed")


class RoomsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set about rooms."""

    # Where datagrams of other processes are taken; a node alone needs no port.
    host: str = "127.0.0.1"
    # The one after cluster.port if nothing is said; 0 picks a free one.
    port: int | None = None
    # The host that others send to, when it is not the one this process is bound to.
    advertise: str = ""
    # Datagrams are authenticated, not hidden: outside loopback that has to be said to be enough.
    allow_plaintext: bool = False
    # The first part of the registry's paths. Systems with names of their own share a registry.
    system: str = "pubsub"
    # Whose routers are used, when they are independent and serve several systems (R12).
    router_system: str = "pubsub"
    # Whether routers have partitions of their own and brokers subscribe to them.
    independent_routers: bool = False
    # The partition of this process's broker; if nothing is said it has one of each partition.
    partition: int | None = None
    # The same of its independent router.
    router_partition: int | None = None
    # The apps whose administrators may set weights: of all apps, rooms are carried by the same.
    weighers: tuple[str, ...] = ("default",)
    # How proxies are chosen by publishers, and replicas by proxies. By weight, a room's messages
    # go to several replicas, which waives their order.
    balance: Literal["turns", "weights"] = "turns"
    # Somebody who has answered nothing for two beats is passed over until it answers again.
    # Signs of life go four times as often, so that one that is lost does not matter.
    beat_s: float = 1.0
    # Chat is small; larger messages need many datagrams, each of which may get lost.
    message_bytes_max: int = 64 * 1024
    datagram_bytes: int = MTU
    # How often a gateway tells of all its rooms anew; who is not told of three times is forgotten.
    refresh_s: float = 20.0
    # How long a join may take to be known to all brokers that have to.
    join_timeout_s: float = 5.0
    # How long routers and brokers may take to load what the store knows.
    load_timeout_s: float = 60.0
    # How often routers compare the store with what they know.
    audit_s: float = 600.0
    # After that long proxies that have not confirmed a new number of partitions do not count.
    confirm_s: float = 10.0
    # Rooms of one session, of one gateway, and of one broker or router.
    joins_max: int = 1000
    rooms_max: int = 1_000_000
    entries_max: int = 4_000_000
    # Ids of messages that a gateway remembers, so that none is delivered twice.
    dedup_max: int = 65_536
    # Publishers whose order a gateway watches, by room; and rooms that stay on one proxy.
    flows_max: int = 65_536
    # What waits while a broker loads, in entries of gateways.
    init_queue_max: int = 1_000_000
    # With no more members than that, one may ask who is in a room.
    who_max: int = 200
    # Hosts that this process hears of; and what waits for one that has not proven itself.
    peers_max: int = 4096
    unproven_bytes_max: int = 64 * 1024
    # Parts of messages that are not whole yet, of all hosts together, and how long they wait.
    pieces_bytes_max: int = 8 * 1024 * 1024
    pieces_s: float = 2.0
    receive_buffer_bytes: int = 4 * 1024 * 1024
    probe: ProbeOptions = ProbeOptions()

    def __post_init__(self) -> None:
        if self.port is not None and not 0 <= self.port <= 65_535:
            raise ConfigError(f"rooms.port: {self.port} is not a port")
        if self.host in ("0.0.0.0", "::") and not self.advertise:  # noqa: S104, refused here
            raise ConfigError(
                f"rooms.advertise: {self.host} is every address; say which one others send to"
            )
        for name in ("system", "router_system"):
            if not _SYSTEM.fullmatch(getattr(self, name)):
                raise ConfigError(
                    f"rooms.{name}: lower-case letters, digits, - and _, 64 characters at most"
                )
        for name in ("partition", "router_partition"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < PARTITIONS_MAX:
                raise ConfigError(f"rooms.{name}: must be between 0 and {PARTITIONS_MAX - 1}")
        self._check_bounds()

    def _check_bounds(self) -> None:
        for name in (
            "beat_s",
            "refresh_s",
            "join_timeout_s",
            "load_timeout_s",
            "audit_s",
            "confirm_s",
            "pieces_s",
        ):
            # So written, NaN is refused as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"rooms.{name}: must be above 0, and finite")
        for name in (
            "message_bytes_max",
            "joins_max",
            "rooms_max",
            "entries_max",
            "dedup_max",
            "flows_max",
            "init_queue_max",
            "who_max",
            "peers_max",
            "unproven_bytes_max",
            "receive_buffer_bytes",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"rooms.{name}: must be at least 1")
        if not 512 <= self.datagram_bytes <= 65_000:
            raise ConfigError("rooms.datagram_bytes: must be between 512 and 65000")
        if self.pieces_bytes_max < 2 * self.message_bytes_max:
            raise ConfigError(
                "rooms.pieces_bytes_max: must be at least twice rooms.message_bytes_max"
            )

    @property
    def silence_s(self) -> float:
        """After how much silence somebody is passed over; noticed within two beats."""
        return 1.75 * self.beat_s

    @property
    def pulse_s(self) -> float:
        """How often a sign of life is asked for."""
        return self.beat_s / 4

    @property
    def expire_s(self) -> float:
        """After how long a gateway that refreshes nothing is forgotten."""
        return 3 * self.refresh_s
