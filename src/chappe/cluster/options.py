"""A cluster's options: where links are accepted, what protects them, and every bound."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from chappe.edge.origin import LOOPBACK
from chappe.errors import ConfigError
from chappe.wire.link import NAME_BYTES_MAX, SECRET_BYTES_MIN

SECRET_BYTES_MAX = 4096
CLUSTER_PORT = 7403


class LinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds and times of the links between nodes."""

    # Short enough that a dead node is known before its clients' own patience (20 s) ends.
    heartbeat_s: float = 5.0
    # So many beats without a byte and a peer is taken for dead: one may be late, two may be lost.
    beats_missed_max: int = 3
    # From the first packet to a proven peer: a few round trips, so this is generous.
    handshake_timeout_s: float = 5.0
    # Unproven connections at once; the one that waits longest goes first. More than any cluster
    # has nodes, and each costs some kilobytes.
    strangers_max: int = 256
    # One tick's worth for one peer; a link that is reset loses no more than this.
    frame_bytes_max: int = 16 * 1024 * 1024
    # What the transport holds before it asks the owner to stop: some ticks of a busy link.
    write_bytes_max: int = 1024 * 1024
    # The ceiling of the first wait before a redial, doubled up to the largest. A restarted node is
    # found within that.
    backoff_first_s: float = 0.1
    backoff_max_s: float = 5.0
    # How long a peer may take to read the last frames and the goodbye.
    close_timeout_s: float = 2.0

    def __post_init__(self) -> None:
        for name in (
            "heartbeat_s",
            "handshake_timeout_s",
            "backoff_first_s",
            "backoff_max_s",
            "close_timeout_s",
        ):
            # So written, NaN is refused as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"cluster.link.{name}: must be above 0, and finite")
        for name in ("beats_missed_max", "strangers_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"cluster.link.{name}: must be at least 1")
        for name in ("frame_bytes_max", "write_bytes_max"):
            if getattr(self, name) < 1024:
                raise ConfigError(f"cluster.link.{name}: must be at least 1024")

    @property
    def silence_s(self) -> float:
        """After how much silence a peer is taken for dead."""
        return self.heartbeat_s * self.beats_missed_max


class Traffic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what travels between nodes."""

    # H12: whoever has not answered by then counts as a miss; a verdict as unknown.
    answer_timeout_s: float = 5.0
    # What waits for one peer that reads slowly; above it, data is refused.
    waiting_bytes_max: int = 8 * 1024 * 1024
    # Verdicts of one peer that are awaited.
    pending_max: int = 100_000
    # How long homes hold what they are asked for until all nodes see the same ones: round trips
    # where they do, and where they do not, messages are late by this and no more.
    settle_s: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"traffic.{name}: must be above 0, and finite")


class ClusterTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates of the links: this node's own, and the authority that signed the others'."""

    cert: str
    key: str
    # Who signs the nodes' certificates: no other authority is believed.
    ca: str
    # The name in every node's certificate; without it, each has to name the host in its URL.
    name: str = ""
    # Whether diallers have to show a certificate as well, beside their proof.
    mutual: bool = False


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set about a node's place in its cluster's mesh."""

    # Part of every proof: clusters that share a secret by mistake stay apart.
    cluster: str = "chappe"
    host: str = "127.0.0.1"
    port: int = CLUSTER_PORT
    # The host that others dial, when it is not the one this node listens on.
    advertise: str = ""
    # The file that holds the cluster's secret.
    secret: str = ""
    # Proofs are safe to overhear, messages are not.
    allow_plaintext: bool = False
    # Whether the open /metrics tells of links and routes too; with --dev it does anyway.
    metrics: bool = False
    tls: ClusterTls | None = None
    link: LinkOptions = LinkOptions()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"cluster.port: {self.port} is not a port")
        if not 0 < len(self.cluster.encode()) <= NAME_BYTES_MAX:
            raise ConfigError(f"cluster.cluster: a name of 1 to {NAME_BYTES_MAX} bytes, please")
        if self.host not in LOOPBACK and self.tls is None and not self.allow_plaintext:
            raise ConfigError(
                f"cluster.host: {self.host} can be reached from outside; set cluster.tls, or "
                "cluster.allow_plaintext when the nodes' network is their own"
            )
        if self.host in ("0.0.0.0", "::") and not self.advertise:  # noqa: S104, refused here
            raise ConfigError(
                f"cluster.advertise: {self.host} is every address; say which one others dial"
            )


def check_secret(secret: bytes, where: str = "cluster.secret") -> bytes:
    """Give a secret back when it is long enough; raises ConfigError, and does not quote it."""
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ConfigError(
            f"{where}: a secret of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, please"
        )
    return secret


def read_secret(file: str) -> bytes:
    """Read the cluster's secret; white space at its ends does not count. Raises ConfigError."""
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cluster.secret: {error}") from None
    return check_secret(data.strip(), f"cluster.secret: {file}")
