"""Routes of administrators about rooms: how their roles and links do, and how much each is given.

They come before the route of a room by its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Annotated, Literal, Protocol

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import UNSET, Meta, UnsetType

from chappe.edge.http.access import Administration
from chappe.edge.http.bodies import Identified, read_body
from chappe.edge.http.description import operation
from chappe.edge.http.exchange import done, read
from chappe.edge.http.neighbours import came_from_a_node, maybe_ask
from chappe.edge.http.query import As, Limit
from chappe.edge.http.relay import Elsewhere
from chappe.errors import Forbidden, Unreachable
from chappe.hub.hub import Hub
from chappe.rooms.linkstats import End, LinkRow
from chappe.rooms.status import RoomsStatus
from chappe.rooms.weighing import NamedWeights, Unknown

_FAILS = (400, 401, 403, 404, 503)
# A weight of each of some thousand roles.
_BODY_BYTES_MAX = 128 * 1024
_MS = 1_000

Weight = Annotated[float, Meta(ge=0, le=1_000_000)]


class RoomsReport(Protocol):
    """What a process that takes part in rooms tells of them."""

    @property
    def sla(self) -> float:
        """The least share of probes that is to arrive over a link."""
        ...

    @property
    def weighers(self) -> tuple[str, ...]:
        """The apps whose administrators may set weights."""
        ...

    def status(self) -> RoomsStatus:
        """How rooms do, as this process sees it."""
        ...

    def links(self) -> Iterable[LinkRow]:
        """The links that its probes went over."""
        ...

    async def weigh(self, named: NamedWeights, *, ignore: bool = False) -> Unknown:
        """Set what each proxy and broker is given; who is not there is ignored, and given.

        Raises BadRequest for those unless they are to be, and Overload if nobody can note it now.
        """
        ...


# Asked for each time: a node may take part in rooms later than it answers requests.
Reporting = Callable[[], RoomsReport | None]


def no_rooms() -> RoomsReport | None:
    """Where nobody takes part in rooms."""
    return None


class RoomEnd(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One end of a link: a role, its node, and its id in the registry."""

    role: str
    node: str
    id: int = 0
    # Of a broker.
    partition: int | None = None


class RoomLinkView(msgspec.Struct, kw_only=True):
    """A link as probes found it. Delays and the share are those of the last measurements."""

    tail: RoomEnd
    head: RoomEnd
    ok: bool
    arrived: int
    failed: int
    share: float
    failed_in_a_row: int
    mean_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    last_ms: float | None
    # When something last came over it, in milliseconds since 1970; 0: never.
    last_at: int
    # Why somebody was told: `failed`, `share`.
    alarms: list[str]


class RoomLinksView(msgspec.Struct, kw_only=True):
    """The links that a node's probes went over, the worst first."""

    node: str
    ok: bool = True
    links: list[RoomLinkView] = []


class RoomLinksBody(msgspec.Struct, kw_only=True):
    """The links as each node found them; a node that did not answer is not `ok`."""

    ok: bool
    sla: float
    nodes: list[RoomLinksView]


class RoomsStatusBody(RoomsStatus, kw_only=True):
    """How rooms do, as the node that was asked sees it."""

    ok: bool


class WeightsBody(Identified, kw_only=True):
    """How much each proxy and broker is given, by its id, or by its node's name where that has one
    only; who is not named is measured."""

    proxies: dict[str, Weight] = {}
    brokers: dict[str, Weight] = {}
    # What becomes of those that are not there: one of them refuses all, or nothing is set for it.
    unknown: Literal["refuse", "ignore"] = "refuse"


class Ignored(msgspec.Struct, kw_only=True):
    """Ids and names that nobody has."""

    proxies: list[int | str]
    brokers: list[int | str]


class WeighedBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Weights were set; if asked for, but for these."""

    ok: bool
    ignored: Ignored | UnsetType = UNSET


_weights_decoder = msgspec.json.Decoder(WeightsBody)
_read_links = msgspec.json.Decoder(RoomLinksBody).decode


class RoomsAdministrationRoutes:
    """Answers those who administer. Rooms are all apps': what is told is numbers and nodes."""

    def __init__(
        self,
        hub: Hub,
        administration: Administration,
        report: Reporting,
        peers: Callable[[], Iterable[str]],
        elsewhere: Elsewhere | None,
    ) -> None:
        self._hub = hub
        self._administration = administration
        self._report = report
        self._peers = peers
        self._elsewhere = elsewhere

    def router(self) -> APIRouter:
        """The routes, ready to be included."""
        router = APIRouter(prefix="/v1/rooms", tags=["rooms"])
        for path, method, route, summary, answer, body in (
            ("/links", "GET", self.links, "How the links of rooms do", RoomLinksBody, None),
            ("/status", "GET", self.status, "How the roles of rooms do", RoomsStatusBody, None),
            ("/weights", "PUT", self.weigh, "How much each is given", WeighedBody, WeightsBody),
        ):
            described = operation(summary, answer, body=body, fails=_FAILS)
            router.add_api_route(path, route, methods=[method], **described)
        return router

    async def links(
        self, request: Request, as_: As = "", app: str | None = None, limit: Limit = 1000
    ) -> Response:
        self._administration.grant(request, as_, app)
        report = self._found()
        nodes = [RoomLinksView(node=self._hub.node or "node", links=_worst(report, limit))]
        if self._elsewhere is not None and not came_from_a_node(request):
            asked = (self._ask(self._elsewhere, peer, request) for peer in self._peers())
            nodes += await asyncio.gather(*asked)
        nodes.sort(key=lambda view: view.node)
        return done(RoomLinksBody(ok=True, sla=report.sla, nodes=nodes))

    async def _ask(self, elsewhere: Elsewhere, name: str, request: Request) -> RoomLinksView:
        answer = await maybe_ask(elsewhere, name, request)
        try:
            return _read_links(answer or b"").nodes[0]
        except msgspec.MsgspecError:
            return RoomLinksView(node=name, ok=False)

    async def status(self, request: Request, as_: As = "", app: str | None = None) -> Response:
        self._administration.grant(request, as_, app)
        told = msgspec.structs.asdict(self._found().status())
        return done(RoomsStatusBody(ok=True, **told))

    async def weigh(self, request: Request) -> Response:
        body: WeightsBody = read_body(_weights_decoder, await read(request, _BODY_BYTES_MAX))
        grant, report = self._administration.grant(request, body.as_, body.app), self._found()
        if grant.app not in report.weighers:
            raise Forbidden(f"app: rooms.weighers does not name {grant.app}")
        named, ignore = NamedWeights(proxies=body.proxies, brokers=body.brokers), body.unknown
        unknown = await report.weigh(named, ignore=ignore == "ignore")
        answer = WeighedBody(ok=True)
        if ignore == "ignore":
            answer.ignored = Ignored(proxies=unknown.proxies, brokers=unknown.brokers)
        return done(answer)

    def _found(self) -> RoomsReport:
        report = self._report()
        if report is None:
            raise Unreachable("rooms: this node takes no part in them")
        return report


def _worst(report: RoomsReport, limit: int) -> list[RoomLinkView]:
    rows = sorted(report.links(), key=_badness)
    return [_view(row, report.sla) for row in rows[:limit]]


def _badness(row: LinkRow) -> tuple[bool, bool, float, float]:
    """Alarms first, then what loses most, then what takes longest; last what was never tried."""
    untried = not row.arrived + row.failed
    return not row.alarms, untried, row.share, -(inf if row.p99_us is None else row.p99_us)


def _view(row: LinkRow, sla: float) -> RoomLinkView:
    return RoomLinkView(
        tail=_end(row.link.tail),
        head=_end(row.link.head),
        ok=not row.alarms and row.share >= sla,
        arrived=row.arrived,
        failed=row.failed,
        share=round(row.share, 6),
        failed_in_a_row=row.in_a_row,
        mean_ms=_ms(row.mean_us),
        p50_ms=_ms(row.p50_us),
        p99_ms=_ms(row.p99_us),
        last_ms=_ms(row.last_us),
        last_at=row.at_us // _MS,
        alarms=list(row.alarms),
    )


def _end(end: End) -> RoomEnd:
    return RoomEnd(role=end.role.name.lower(), node=end.name, id=end.id, partition=end.partition)


def _ms(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / _MS
