"""Calls to Redis with a time limit, and what a failure of one means."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)

from chappe.errors import StorageError
from chappe.redis.script import Script
from chappe.redis.servers import BROKEN, Command, Servers

_FAILURES = (RedisError, RedisClusterException, *BROKEN)
# Refused before anything was done; the same may work later.
_LATER = (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
# The client has no types for these; older servers wrap what a script met.
_LATER_CODES = re.compile(
    r"(^|-)(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN)\b"
)


class Failure(StorageError):
    """A call that did not succeed.

    `temporary` says that the same call may work later, `maybe_done` that it may have been carried
    out, `everywhere` that others would fail as well, `denied` that it is for want of a right.
    """

    def __init__(
        self,
        reason: str,
        *,
        temporary: bool,
        maybe_done: bool,
        everywhere: bool,
        denied: bool = False,
    ) -> None:
        super().__init__(reason)
        self.denied = denied
        self.temporary = temporary
        self.maybe_done = maybe_done
        self.everywhere = everywhere


def unforeseen(error: Exception) -> Failure:
    """What nobody thought of, as a failure: the cause is in the log."""
    reason = f"a mistake of our own: {type(error).__name__}"
    return Failure(reason, temporary=True, maybe_done=True, everywhere=False)


class Calls:
    """Calls to the servers of a Redis."""

    def __init__(self, servers: Servers, shown: str, timeout_s: float) -> None:
        self.servers = servers
        self.shown = shown
        self.timeout_s = timeout_s

    async def run(self, key: str, *commands: Command, timeout_s: float | None = None) -> list[Any]:
        """Carry out commands where a key lives; raises Failure for the first that fails."""
        answers = await self._answers(key, commands, timeout_s)
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise self._refused(answer)
        return answers

    async def run_script(
        self,
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[str | bytes | int],
        *after: Command,
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Run a script, and some commands after it; raises Failure."""
        rest = (len(keys), *keys, *arguments)
        commands: list[Command] = [("EVALSHA", script.sha, *rest), *after]
        answers = await self._answers(keys[0], commands, timeout_s)
        if not isinstance(answers[0], NoScriptError):
            for answer in answers:
                if isinstance(answer, ResponseError):
                    raise self._refused(answer)
            return answers
        return await self.run(keys[0], ("EVAL", script.text, *rest), *after, timeout_s=timeout_s)

    async def each(self, *commands: Command) -> list[list[Any]]:
        """Carry out commands on every server that takes writes; raises Failure without answers."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self.servers.each(commands)
        except _FAILURES as error:
            raise self._broken(error) from None

    async def _answers(
        self, key: str, commands: Sequence[Command], timeout_s: float | None
    ) -> list[Any]:
        try:
            async with asyncio.timeout(self.timeout_s if timeout_s is None else timeout_s):
                return await self.servers.run(key, commands)
        except _FAILURES as error:
            raise self._broken(error) from None

    def _broken(self, error: Exception) -> Failure:
        if isinstance(error, TimeoutError):
            reason = "no answer in time"
        else:
            reason = f"{error}" or type(error).__name__
        return Failure(
            f"{self.shown}: {reason}",
            temporary=True,
            maybe_done=True,
            everywhere=self.servers.all_away(error),
            denied=isinstance(error, AuthenticationError),
        )

    def _refused(self, error: ResponseError) -> Failure:
        later = isinstance(error, _LATER) or _LATER_CODES.search(str(error)) is not None
        never = isinstance(error, NoPermissionError)
        return Failure(
            f"{self.shown}: {error}",
            temporary=later and not never,
            maybe_done=not later,
            everywhere=later and self.servers.all_away(error),
            denied=never or isinstance(error, AuthenticationError),
        )
