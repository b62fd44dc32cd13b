"""Whether a Redis keeps what it acknowledges; one that does not is refused."""

from __future__ import annotations

from typing import Any

from redis.exceptions import ResponseError

from chappe.redis.calls import Calls

_SAY = "; say aof=any to use it all the same"


async def faults_of(calls: Calls) -> list[str]:
    """What is wrong with the settings of the servers; raises Failure when they do not answer."""
    commands = (
        ("INFO", "persistence"),
        ("INFO", "memory"),
        ("CONFIG", "GET", "appendfsync"),
    )
    faults: dict[str, None] = {}
    for persistence, memory, config in await calls.each(*commands):
        fault = _fault(persistence, memory, config)
        if fault is not None:
            faults[f"{calls.shown}: {fault}{_SAY}"] = None
    return list(faults)


def _fault(persistence: Any, memory: Any, config: Any) -> str | None:
    for answer in (persistence, memory):
        if isinstance(answer, ResponseError):
            return f"INFO is refused ({answer}), so nobody knows whether appendonly is on"
    if _info(persistence).get("aof_enabled") != "1":
        return "appendonly is off: it forgets what it acknowledged when it ends"
    room = _info(memory)
    policy = room.get("maxmemory_policy", "noeviction")
    if room.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
        return f"maxmemory-policy is {policy}: it forgets messages when its memory is full"
    if isinstance(config, ResponseError):
        return f"CONFIG is refused ({config}), so nobody knows its appendfsync"
    how = config[1].decode() if len(config) == 2 else "unknown"
    if how not in ("always", "everysec"):
        return f"appendfsync is {how}: it must be always, or everysec to lose a second at most"
    return None


def _info(answer: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in answer.decode().splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}
