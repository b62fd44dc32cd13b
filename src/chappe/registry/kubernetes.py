"""Members by DNS: the addresses behind a headless Kubernetes service.

DNS knows addresses and nothing else. So a node is named after its address, which every other
derives alike, and which run of it that is nobody knows before the link's handshake has told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from ipaddress import ip_address
from urllib.parse import urlsplit

import structlog
from dns.asyncresolver import Resolver
from dns.exception import DNSException
from dns.resolver import NXDOMAIN, NoAnswer

from chappe.errors import ClusterError, ConfigError
from chappe.registry.bell import Bell
from chappe.registry.changes import changes
from chappe.registry.ledger import MEMBERS
from chappe.registry.membership import Member, Members
from chappe.registry.options import RegistryOptions

log = structlog.get_logger()

# What is said of a node whose run is not known.
UNKNOWN = 0


def node_name(address: str) -> str:
    """The name of the node at an IP address; raises ConfigError if that is none."""
    try:
        return str(ip_address(address)).replace(".", "-").replace(":", "-")
    except ValueError:
        raise ConfigError(
            f"registry: under kubernetes:// a node is told others by an IP address, not {address!r}"
        ) from None


class ServiceMembership:
    """The nodes behind a service; DNS takes them in and out by itself."""

    def __init__(
        self,
        service: str,
        port: int,
        *,
        tls: bool,
        server: tuple[str, int] | None,
        options: RegistryOptions,
    ) -> None:
        self._service = service
        self._port = port
        self._scheme = "wss" if tls else "ws"
        self._server = server
        self._options = options
        self._bell = Bell()
        self._resolver: Resolver | None = None
        self._me: Member | None = None

    async def join(self, member: Member) -> None:
        """Know oneself among the members; raises ConfigError for a name that others do not see.

        Raises ClusterError when DNS cannot be reached. It need not know this node yet: a service
        may list a pod only after it said that it is ready.
        """
        expected = node_name(urlsplit(member.url).hostname or "")
        if member.name != expected:
            raise ConfigError(
                f"registry: under kubernetes:// the node at {member.url} is {expected},"
                f" not {member.name}"
            )
        await self._addresses()
        self._me = member
        self._bell.ring(MEMBERS)

    async def leave(self) -> None:
        """See oneself no more; the others learn of it from DNS."""
        self._me = None
        self._bell.ring(MEMBERS)

    async def replaced(self) -> Member:
        """Wait for ever: an address is one node's."""
        never: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
        return await never

    async def watch(self) -> AsyncIterator[Members]:
        """Give the members, then again each time they have changed."""
        async for members in changes(self._bell, MEMBERS, self._look, self._options.poll_s):
            yield members

    async def close(self) -> None:
        """Leave."""
        await self.leave()

    async def _look(self) -> tuple[Members, None]:
        members = {}
        for address in await self._addresses():
            host = f"[{address}]" if ":" in address else address
            name = node_name(address)
            members[name] = Member(
                name=name, incarnation=UNKNOWN, url=f"{self._scheme}://{host}:{self._port}"
            )
        if self._me is not None:
            members[self._me.name] = self._me
        return dict(sorted(members.items())), None

    async def _addresses(self) -> list[str]:
        """Ask DNS for both kinds of address; raises ClusterError if it cannot tell of one."""
        found = await asyncio.gather(self._resolve("A"), self._resolve("AAAA"))
        return [*found[0], *found[1]]

    async def _resolve(self, kind: str) -> list[str]:
        try:
            answer = await self._resolving().resolve(
                self._service, kind, lifetime=self._options.timeout_s
            )
        except (NXDOMAIN, NoAnswer):
            return []
        except (DNSException, OSError) as error:
            raise ClusterError(
                f"kubernetes service {self._service}: {type(error).__name__} {error}"
            ) from error
        return [str(ip_address(record.address)) for record in answer]

    def _resolving(self) -> Resolver:
        """Make the resolver at its first use: without a server of ours it reads the machine's."""
        if self._resolver is None:
            try:
                self._resolver = Resolver(configure=self._server is None)
            except DNSException as error:
                raise ClusterError(f"the machine's DNS settings: {error}") from error
            if self._server is not None:
                self._resolver.nameservers = [self._server[0]]
                self._resolver.port = self._server[1]
        return self._resolver
