"""A node's options: built once from file, environment and flags, in that order, checked whole."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from chappe.access.token import Key
from chappe.cluster.options import ClusterOptions, Traffic
from chappe.edge.http.options import HttpOptions
from chappe.edge.origin import LOOPBACK
from chappe.endpoints.options import HookOptions
from chappe.endpoints.presence import PresenceOptions
from chappe.errors import ConfigError
from chappe.hub.options import HubOptions
from chappe.ids import NODE_MAX
from chappe.log.options import JournalOptions
from chappe.node.roles import HUB, PUSH_ROLES, ROOM_ROLES, check_roles, played, split_roles
from chappe.push.admin.options import DeskOptions
from chappe.push.options import CometOptions
from chappe.push.state.url import NAMES as STATES
from chappe.push.webpush.options import WebPushOptions
from chappe.queues.options import QueueLimits, ReplicationOptions
from chappe.registry.options import RegistryOptions
from chappe.rooms.options import RoomsOptions
from chappe.wire.limits import Limits

ENVIRONMENT_PREFIX = "CHAPPE_"
# Where in a node's data folder its journals are.
JOURNALS = "journals"
# And what it recorded.
EVENTS = "events"
# In that, what is not copied to tables yet; beginning so, their readers pass over it.
EVENT_LOGS = "_log"
# Smaller shares cannot be told apart from none.
_SHARE_MIN = 0.00001
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Sections inside the sections about the cluster, rooms and push.
_NESTED = ("tls", "link", "probe", "comet", "desk", "webpush", "states")
# More processes than a machine has cores help nobody.
WORKERS_MAX = 256
COMET_PORT = 7405


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's certificate, for every edge."""

    cert: str
    key: str


class Access(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may come in: the keys that sign tokens, and the web pages that may connect.

    `connects_per_s` bounds how often one network address may try; 0 means no bound, since a
    company behind one address looks like one caller.
    """

    keys: list[Key] = []
    origins: list[str] = []
    connects_per_s: float = 0

    def __post_init__(self) -> None:
        # So written, NaN is refused as well; less than one at a time would let nobody in.
        if self.connects_per_s != 0 and not 1 <= self.connects_per_s < math.inf:
            raise ConfigError("access.connects_per_s: must be 0, or at least 1, and finite")


class ParquetOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether queues are copied to Parquet files, and where."""

    # Needs the extra `parquet`.
    enabled: bool = False
    # Where to; `parquet` in the data folder if not given.
    folder: str = ""
    # The journal waits for its copy. When so much of it does, the oldest is let go uncopied; 0:
    # never, since what is missing in the copies is missing for ever.
    waiting_bytes_max: int = 0

    def __post_init__(self) -> None:
        if self.waiting_bytes_max < 0:
            raise ConfigError("parquet.waiting_bytes_max: must be 0 or above")


class EventsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is recorded of the life of messages, and where."""

    # Needs the extra `parquet`; if nothing is said, it is on where that is installed.
    enabled: bool | None = None
    # Of all messages but those of queues, which are all recorded; 1 with --dev if not given.
    share: float | None = None
    # Where to; `events` in the data folder if not given. Nodes may have the same.
    folder: str = ""
    # What happened is in the tables so long after: with less there are more files.
    seal_s: float = 10.0
    segment_bytes: int = 8 * 1024 * 1024
    # As much may wait to be copied; beyond that nothing is recorded, and how much that is, is.
    disk_bytes_max: int = 1024 * 1024 * 1024
    # How long this node's tables are kept, and how many bytes of them; 0: all. A disk that nobody
    # looks at does not fill up; who wants more has the pipeline take them, or says so.
    retention_s: float = 7 * 86_400.0
    retention_bytes: int = 16 * 1024 * 1024 * 1024

    def __post_init__(self) -> None:
        if not 0 <= self.retention_s < math.inf:
            raise ConfigError("events.retention_s: must be 0 or above, and finite")
        if self.retention_bytes < 0:
            raise ConfigError("events.retention_bytes: must be 0 or above")
        # So written, NaN is refused as well.
        if self.share and not _SHARE_MIN <= self.share <= 1:
            raise ConfigError(f"events.share: must be 0, or from {_SHARE_MIN:f} to 1")
        if not 0.1 <= self.seal_s < math.inf:
            raise ConfigError("events.seal_s: must be at least 0.1, and finite")
        if self.segment_bytes < 65_536:
            raise ConfigError("events.segment_bytes: must be at least 65536")
        if self.disk_bytes_max < 2 * self.segment_bytes:
            raise ConfigError("events.disk_bytes_max: must be at least twice events.segment_bytes")


class PushOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Push to devices: where its processes are reached, and where they keep what they know."""

    # What devices are told to connect to, such as push.example.org:443, or tls://push.example.org:443
    # where something in front speaks TLS; where it listens if not given.
    advertise: str = ""
    # For links between processes of push; three above that of links between nodes if not given.
    port: int | None = None
    # Where what is embedded lies; the data folder if not given.
    folder: str = ""
    # A file with the key that secrets are sealed with: one that a node alone has made, where it was
    # moved to others; what the cluster's secret makes, or the folder has, if not given.
    key: str = ""
    # By name of a state, where that is kept; where nothing is said, `store` says it for all.
    states: dict[str, str] = {}
    # How often what expired is forgotten.
    sweep_s: float = 5.0
    # A comet that is not linked for so long is taken to be gone, and nobody to be on it.
    gone_s: float = 30.0
    comet: CometOptions = CometOptions()
    desk: DeskOptions = DeskOptions()
    webpush: WebPushOptions = WebPushOptions()

    def __post_init__(self) -> None:
        for name in self.states:
            if name not in STATES:
                raise ConfigError(f"push.states: {name!r} is none of {', '.join(STATES)}")
        scheme, given, _ = self.advertise.partition("://")
        if given and scheme not in ("tcp", "tls"):
            raise ConfigError(f"push.advertise: {scheme}:// is neither tcp:// nor tls://")
        for name in ("sweep_s", "gone_s"):
            # So written, NaN is refused as well.
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"push.{name}: must be above 0, and finite")
        if self.port is not None and not 0 <= self.port <= 65_535:
            raise ConfigError(f"push.port: {self.port} is not a port")
        scheme, sep, _ = self.advertise.rpartition("://")
        if sep and scheme not in ("tcp", "tls"):
            raise ConfigError("push.advertise: HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT")


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set about a node."""

    dev: bool = False
    host: str = "127.0.0.1"
    port: int = 7400
    http_port: int = 7401
    tcp_port: int = 7402
    # For devices; 7405 if not given, or any where `port` or `http_port` is any.
    comet_port: int | None = None
    data: str = ".chappe"
    # Who knows the other nodes: memory (there are none), redis://, zookeeper://, kubernetes://.
    registry: str = "memory"
    # What outlives this process: memory, sqlite: (in the data folder), sqlite:/file, redis://.
    store: str = "sqlite:"
    # Where durable queues are kept: local (a journal in the data folder), redis://.
    queues: str = "local"
    # What others call this node; chosen once and kept in the data folder if not given.
    name: str = ""
    # Part of every message id: no two nodes of a cluster have the same. Given out by the registry
    # if it can; 0 for a node alone.
    number: int | None = None
    # What it does: hub, proxy, broker, router, gateway, comet, web, admin; all of it if nothing is
    # said.
    roles: tuple[str, ...] = ()
    # How many nodes share this machine's ports; above 1 they are processes of their own.
    workers: int = 1
    # Tokens travel in the first frame: without TLS they may be read on the way.
    allow_plaintext: bool = False
    deflate: bool = True
    # How long a stranger's TLS handshake may take, and then a WebSocket's upgrade.
    handshake_timeout_s: float = 10.0
    # How long a draining node waits for its clients to leave by themselves.
    drain_s: float = 5.0
    tls: Tls | None = None
    access: Access = Access()
    hub: HubOptions = HubOptions()
    http: HttpOptions = HttpOptions()
    limits: Limits = Limits()
    leases: RegistryOptions = RegistryOptions()
    cluster: ClusterOptions = ClusterOptions()
    traffic: Traffic = Traffic()
    presence: PresenceOptions = PresenceOptions()
    rooms: RoomsOptions = RoomsOptions()
    push: PushOptions = PushOptions()
    journal: JournalOptions = JournalOptions()
    queue_limits: QueueLimits = QueueLimits()
    replication: ReplicationOptions = ReplicationOptions()
    parquet: ParquetOptions = ParquetOptions()
    events: EventsOptions = EventsOptions()
    # Whether /metrics, which anybody may read, names queues.
    queue_metrics: bool = False
    # By app: whom to tell who is gone and who came.
    hooks: dict[str, HookOptions] = {}

    def __post_init__(self) -> None:
        for name in ("port", "http_port", "tcp_port", "comet_port"):
            if not 0 <= (getattr(self, name) or 0) <= 65_535:
                raise ConfigError(f"{name}: {getattr(self, name)} is not a port")
        self._check_place()
        self._check_rooms()
        # So written, NaN is refused as well.
        if not 0 < self.handshake_timeout_s < math.inf:
            raise ConfigError("handshake_timeout_s: must be above 0, and finite")
        if not 0 <= self.drain_s < math.inf:
            raise ConfigError("drain_s: must not be below 0, and finite")
        if self.hub.outbox_bytes_max < 2 * self.limits.message_bytes_max:
            raise ConfigError(
                "hub.outbox_bytes_max: must be at least twice limits.message_bytes_max, "
                "so that any message fits"
            )
        loopback = self.host in LOOPBACK
        if self.dev and not loopback:
            raise ConfigError(
                f"host: --dev lets anybody in, so it stays on loopback, not {self.host}"
            )
        if not loopback and self.tls is None and not self.allow_plaintext:
            raise ConfigError(
                f"host: {self.host} can be reached from outside; set tls, or allow_plaintext when "
                "something in front of this node does it"
            )
        if not self.dev and not self.access.keys and self.has_hub:
            raise ConfigError(
                "access.keys: without a key nobody could say hello; "
                "`chappe token key FILE` makes one, or use --dev on this machine"
            )

    @property
    def has_hub(self) -> bool:
        """Whether clients may come here."""
        return HUB in played(self.roles)

    @property
    def devices_port(self) -> int:
        """Where devices are taken."""
        if self.comet_port is not None:
            return self.comet_port
        return COMET_PORT if self.port and self.http_port else 0

    @property
    def has_push(self) -> bool:
        """Whether it has a part in push."""
        return not played(self.roles).isdisjoint(PUSH_ROLES)

    def _check_rooms(self) -> None:
        check_roles(self.roles)
        roles, rooms = played(self.roles), self.rooms
        if rooms.host not in LOOPBACK and not rooms.allow_plaintext:
            raise ConfigError(
                f"rooms.host: {rooms.host} can be reached from outside, and datagrams are "
                "authenticated, not hidden; set rooms.allow_plaintext when that is enough"
            )
        if rooms.partition is not None and "broker" not in roles:
            raise ConfigError("rooms.partition: is a broker's, and roles names none")
        if rooms.router_partition is not None and "router" not in roles:
            raise ConfigError("rooms.router_partition: is a router's, and roles names none")
        if rooms.router_partition is not None and not rooms.independent_routers:
            raise ConfigError(
                "rooms.router_partition: only independent routers have partitions: "
                "rooms.independent_routers"
            )
        if self.workers > 1 and not self.has_hub and not self.has_push:
            raise ConfigError("workers: share the ports of clients, and roles names nobody who has")
        if self.registry.startswith("kubernetes:") and not ROOM_ROLES.keys().isdisjoint(self.roles):
            raise ConfigError(
                "roles: kubernetes:// knows members only, and rooms need values and seats: use "
                "redis:// or zookeeper://"
            )

    def _check_place(self) -> None:
        first = self.number or 0
        if not 0 <= first <= NODE_MAX:
            raise ConfigError(f"number: must be between 0 and {NODE_MAX}")
        if self.name and not _NAME.fullmatch(self.name):
            raise ConfigError("name: letters, digits, - and _, 64 at most")
        if self.cluster.link.frame_bytes_max < 4 * self.hub.outbox_bytes_max:
            raise ConfigError(
                "cluster.link.frame_bytes_max: must be at least four times hub.outbox_bytes_max, "
                "so that what is said to a session fits"
            )
        if self.traffic.waiting_bytes_max < 1024 * 1024:
            raise ConfigError(
                "traffic.waiting_bytes_max: must be at least 1048576, so that a run of messages "
                "does not fill it"
            )
        if self.registry != "memory" and not self.cluster.secret:
            raise ConfigError(
                "cluster.secret: nodes prove themselves to each other with a secret; "
                "`chappe token key FILE` makes one, --cluster-secret-file FILE names it"
            )
        if self.workers > 1 and self.registry.startswith("kubernetes:"):
            raise ConfigError(
                "workers: under kubernetes:// an address is one node; run more pods instead"
            )
        if self.parquet.enabled and self.queues != "local":
            raise ConfigError(
                "parquet.enabled: only queues in a journal are copied: queues = local"
            )
        if not 1 <= self.workers <= WORKERS_MAX:
            raise ConfigError(f"workers: must be between 1 and {WORKERS_MAX}")
        if first + self.workers - 1 > NODE_MAX:
            raise ConfigError(f"number: each worker needs one of its own, up to {NODE_MAX}")


def load_options(
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> NodeOptions:
    """Build the options; later sources win. Raises ConfigError naming the option.

    Defaults are those of a command that has other ones than a node.
    """
    values: dict[str, Any] = _read(file) if file else {}
    names = [f.encode_name for f in msgspec.structs.fields(NodeOptions)]
    sections = (
        "tls",
        "access",
        "hub",
        "http",
        "limits",
        "leases",
        "cluster",
        "traffic",
        "presence",
        "rooms",
        "push",
        "journal",
        "queue_limits",
        "replication",
        "parquet",
        "events",
        "hooks",
    )
    scalars = {n for n in names if n not in sections}
    # What a container learns of its place only when it starts is of these sections.
    scalars |= {f"cluster.{n}" for n in ClusterOptions.__struct_fields__ if n not in _NESTED}
    scalars |= {f"rooms.{n}" for n in RoomsOptions.__struct_fields__ if n not in _NESTED}
    scalars |= {f"push.{n}" for n in PushOptions.__struct_fields__ if n not in _NESTED}
    scalars |= {f"events.{n}" for n in EventsOptions.__struct_fields__}
    for name, value in (defaults or {}).items():
        _set_unless_there(values, name, value)
    for name in scalars:
        text = environment.get(ENVIRONMENT_PREFIX + name.replace(".", "_").upper())
        if text is not None:
            _set(values, name, text)
    for name, value in flags.items():
        if value is not None:
            _set(values, name, value)
    if isinstance(roles := values.get("roles"), str):
        values["roles"] = split_roles(roles)
    try:
        # Not strict: an environment variable is text, whatever it stands for.
        return msgspec.convert(values, NodeOptions, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error).replace("`$.", "`")) from None


def _set(values: dict[str, Any], name: str, value: Any) -> None:
    """Set an option, or one of a section: `cluster.port`."""
    section, _, inner = name.rpartition(".")
    if section:
        values[section] = {**values.get(section, {}), inner: value}
    else:
        values[name] = value


def _set_unless_there(values: dict[str, Any], name: str, value: Any) -> None:
    section, _, inner = name.rpartition(".")
    if inner not in (values.get(section, {}) if section else values):
        _set(values, name, value)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"--config: {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {file}: {error}") from None
