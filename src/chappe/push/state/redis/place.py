"""A Redis server, and those of the five states that are kept there."""

from __future__ import annotations

from collections.abc import Callable, Collection

from chappe.push.state.redis.line import Line
from chappe.push.state.redis.message import RedisMessages
from chappe.push.state.redis.meta import RedisMeta
from chappe.push.state.redis.records import RedisRecords
from chappe.push.state.redis.route import RedisRoutes
from chappe.push.state.redis.topic import RedisTopics
from chappe.push.state.redis.user import RedisUsers
from chappe.store.redis_server import RedisServer

# For 100 million users: 95 entries in each, and in all but one of three thousand no more than the
# 128 up to which Redis keeps a hash small. With fewer users each holds less, and the hundred bytes
# that it takes itself weigh more; with more users hashes grow large: they work as well, at thrice
# the size.
BUCKETS = 1 << 20
BUCKETS_MAX = 1 << 24
STATES = ("meta", "user", "route", "message", "topic")
# One client in ten is connected, or fewer.
ROUTE_SHARE = 8
# Who has more than five topics has several fields.
TOPIC_TIMES = 2


class RedisPlace:
    """A server with some of the states, in so many buckets each.

    `wall_ms` says what has expired.
    """

    def __init__(
        self,
        server: RedisServer,
        prefix: str,
        wall_ms: Callable[[], int],
        buckets: int = BUCKETS,
        states: Collection[str] = STATES,
    ) -> None:
        self._server = server
        self._states = states

        counts = {"route": max(1, buckets // ROUTE_SHARE), "topic": buckets * TOPIC_TIMES}
        lines = {state: Line(server, prefix, state, counts.get(state, buckets)) for state in STATES}
        self.meta = RedisMeta(lines["meta"], wall_ms)
        self.user = RedisUsers(lines["user"], wall_ms)
        self.route = RedisRoutes(lines["route"])
        self.message = RedisMessages(lines["message"], wall_ms)
        self.topic = RedisTopics(lines["topic"])
        self.records = RedisRecords(lines, wall_ms)

    async def sweep(self) -> int:
        """Forget some of what expired; what has a time to live is Redis's own matter."""
        gone = 0
        for name, state in (
            ("user", self.user),
            ("route", self.route),
            ("message", self.message),
            ("topic", self.topic),
        ):
            if name in self._states:
                gone += await state.sweep()
        return gone

    async def close(self) -> None:
        """Hang up."""
        await self._server.close()
