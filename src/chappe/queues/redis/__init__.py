"""Queues in Redis Streams: for those who outgrow one machine's disk."""

from chappe.queues.redis.storage import RedisStorage, open_redis

__all__ = ["RedisStorage", "open_redis"]
