"""The states of push in Redis, each on a server of its own if wanted.

How much of what was acknowledged is there after a crash is Redis's own setting (`appendfsync`); one
that is full must refuse, not evict (`maxmemory-policy noeviction`, its default).
"""

from chappe.push.state.redis.place import RedisPlace

__all__ = ["RedisPlace"]
