"""Serving: who may come in, and what becomes of what sessions say (K5, K7).

Handlers are coroutines or plain functions; the latter run in threads. Those of one session are
called one after the other, in the order of its messages; other sessions do not wait for them.

A handler that refuses, by raising a RequestError, has its session told why, as a text of type
`error`. Whatever else one raises is logged, and the session told that something went wrong.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from chappe.errors import BadRequest, CloseCode, ErrorCode, Forbidden, RequestError
from chappe.hub.session import Sink
from chappe.keys.broker import Broker
from chappe.keys.options import KeysOptions
from chappe.keys.routes import Handler, Routes
from chappe.keys.session import Handshake, KeySession
from chappe.wire.keyed import ERROR, decode_keyed

log = structlog.get_logger()
# What somebody else's program raised goes where its other errors go, as it is usual there.
_errors = logging.getLogger("chappe.keys")

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]

# Types are chosen by strangers: that many unknown ones are told apart in the log.
_TOLD_MAX = 1_000
# How long those who are told that sessions have ended may take when the hub stops.
_LEAVING_S = 5.0


class Hooks:
    """What somebody's program wants to be asked, and told."""

    def __init__(self) -> None:
        self.routes = Routes()
        self.handshake: list[Handler] = []
        self.connect: list[Handler] = []
        self.disconnect: list[Handler] = []


class Serving:
    """Calls the handlers of a program for the sessions of a broker.

    `in_thread` runs a plain function in a thread, where it may take its time.
    """

    def __init__(
        self,
        broker: Broker,
        hooks: Hooks,
        options: KeysOptions,
        bytes_max: int,
        in_thread: InThread,
    ) -> None:
        self.broker = broker
        self.options = options
        self.bytes_max = bytes_max
        self._hooks = hooks
        self._in_thread = in_thread
        self._told: set[tuple[str, str]] = set()
        self._counts: Counter[str] = Counter()
        self._leaving: set[asyncio.Task[None]] = set()
        broker.on_left = self._left

    async def stop(self) -> None:
        """End every session, and wait a while for those who are told of it."""
        self.broker.end_all()
        if self._leaving:
            _, late = await asyncio.wait(self._leaving, timeout=_LEAVING_S)
            for task in late:
                task.cancel()
            if late:
                log.warning("keys.disconnect.late", hooks=len(late))
                await asyncio.wait(late)

    def counts(self) -> dict[str, int]:
        """What has happened so far."""
        return {**self.broker.counts(), **self._counts}

    async def refusal(self, handshake: Handshake) -> str | None:
        """Why somebody may not come in; None who may."""
        hooks = self._hooks
        if not (hooks.routes.has(handshake.path) or hooks.connect):
            return self._refused("there is nothing here")
        for hook in hooks.handshake:
            try:
                allowed = await self._call(hook, handshake)
            except RequestError as error:
                return self._refused(error.reason)
            except Exception:  # somebody else's program: whatever it raises, nobody comes in
                _errors.exception("a handshake hook failed: %s", handshake.path)
                return self._refused("not possible now")
            if allowed is False:
                return self._refused("not allowed")
        return None

    def _refused(self, reason: str) -> str:
        self._counts["handshakes_refused"] += 1
        return reason

    def open(self, edge: str, sink: Sink, handshake: Handshake, *, beats: bool) -> KeySession:
        """Take a connection in; raises Overload."""
        return self.broker.open(edge, sink, handshake, beats=beats)

    async def connected(self, session: KeySession) -> None:
        """Tell that a session has begun: it may be given keys. Who refuses, ends it."""
        for hook in self._hooks.connect:
            try:
                await self._call(hook, session)
            except RequestError as error:
                code = CloseCode.POLICY_VIOLATION
                if isinstance(error, Forbidden):
                    code = CloseCode.UNAUTHORIZED
                self.broker.end(session, code, error.reason)
                return
            except Exception:  # somebody else's program
                _errors.exception("a connect hook failed: %s", session.path)
                self.broker.end(session, CloseCode.INTERNAL_ERROR, "not possible now")
                return

    def _left(self, session: KeySession) -> None:
        if self._hooks.disconnect:
            task = asyncio.get_running_loop().create_task(self._tell_left(session))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _tell_left(self, session: KeySession) -> None:
        for hook in self._hooks.disconnect:
            try:
                await self._call(hook, session)
            except Exception:  # somebody else's program
                _errors.exception("a disconnect hook failed: %s", session.path)

    async def take(self, session: KeySession, message: str | bytes) -> None:
        """Hand what a session said to the handlers of it."""
        if isinstance(message, str):
            await self.take_text(session, message)
        else:
            await self.take_binary(session, message)

    async def take_text(self, session: KeySession, text: str) -> None:
        """Hand a text to the handlers of its path and type."""
        try:
            message = decode_keyed(text)
        except BadRequest as error:
            self._tell_error(session, "", error.code, error.reason)
            return
        if message is None:
            handlers = self._hooks.routes.of_plain(session.path)
            await self._hand(session, handlers, text, "text")
            return
        handlers = self._hooks.routes.of_text(session.path, message.type)
        await self._hand(session, handlers, message, message.type, message.key)

    async def take_binary(self, session: KeySession, data: bytes) -> None:
        """Hand bytes to the binary handlers of their path."""
        await self._hand(session, self._hooks.routes.of_binary(session.path), data, "binary")

    async def _hand(
        self, session: KeySession, handlers: list[Handler], message: Any, kind: str, key: str = ""
    ) -> None:
        if not handlers:
            self._unmatched(session.path, kind)
        for handler in handlers:
            try:
                await self._call(handler, session, message)
            except RequestError as error:
                self._counts["handlers_refused"] += 1
                self._tell_error(session, key, error.code, error.reason)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Something that it awaited was cancelled, not the handler.
                self._failed(session, kind, key)
            except Exception:  # somebody else's program: the session and other handlers go on
                self._failed(session, kind, key)

    def _failed(self, session: KeySession, kind: str, key: str) -> None:
        self._counts["handlers_failed"] += 1
        _errors.exception("a handler failed: %s %s", session.path, ascii(kind[:64]))
        self._tell_error(session, key, "internal", "something went wrong here")

    async def _call(self, handler: Handler, *arguments: Any) -> Any:
        if _is_coroutine(handler):
            return await handler(*arguments)
        context = contextvars.copy_context()
        found = await self._in_thread(partial(context.run, handler, *arguments))
        return await found if inspect.isawaitable(found) else found

    def _unmatched(self, path: str, kind: str) -> None:
        """K7: dropped, counted, logged once per path and type."""
        self._counts["unmatched"] += 1
        told = (path[:64], kind[:64])
        if told not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(told)
            log.warning("keys.unmatched", path=told[0], type=told[1])

    def _tell_error(
        self, session: KeySession, key: str, error: ErrorCode | str, reason: str
    ) -> None:
        told = {"error": str(error), "reason": reason}
        self.broker.say(session, told, type=ERROR, key=key)


def _is_coroutine(handler: Handler) -> bool:
    if isinstance(handler, partial):
        return _is_coroutine(handler.func)
    call = getattr(type(handler), "__call__", None)  # noqa: B004, an object may have a coroutine
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
