"""How a program says what its hub is to do: handlers as decorators, and calls from threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from chappe.errors import CloseCode
from chappe.keys.routes import ANY, Handler, check_path
from chappe.keys.serving import Hooks
from chappe.keys.session import KeySession
from chappe.wire.keyed import MESSAGE

H = TypeVar("H", bound=Handler)
T = TypeVar("T")


class Handlers:
    """Handlers are coroutines or plain functions; the latter run in threads."""

    def __init__(self) -> None:
        self.hooks = Hooks()

    def text(self, path: str, *, type: str = ANY) -> Callable[[H], H]:
        """Call `handler(session, message)` for texts `{"type", "key", "data"}` on a path; raises
        ConfigError for what is none."""
        check_path(path)

        def add(handler: H) -> H:
            self.hooks.routes.add_text(path, type, handler)
            return handler

        return add

    def binary(self, path: str) -> Callable[[H], H]:
        """Call `handler(session, data)` for binary messages on a path."""
        check_path(path)

        def add(handler: H) -> H:
            self.hooks.routes.add_binary(path, handler)
            return handler

        return add

    def plaintext(self, path: str) -> Callable[[H], H]:
        """Call `handler(session, text)` for other texts on a path."""
        check_path(path)

        def add(handler: H) -> H:
            self.hooks.routes.add_plain(path, handler)
            return handler

        return add

    def on_handshake(self, hook: H) -> H:
        """Call `hook(handshake)` before anybody comes in: False, or Forbidden, refuses."""
        self.hooks.handshake.append(hook)
        return hook

    def on_connect(self, hook: H) -> H:
        """Call `hook(session)` when one has begun: it may be given keys."""
        self.hooks.connect.append(hook)
        return hook

    def on_disconnect(self, hook: H) -> H:
        """Call `hook(session)` when one has ended: its keys are gone by then."""
        self.hooks.disconnect.append(hook)
        return hook


class Keys(Protocol):
    """What can be done by key, on the loop of a hub."""

    def send(
        self, key: str | int, data: Any, *, type: str = MESSAGE
    ) -> Coroutine[Any, Any, int]: ...

    def subscribe(self, session: KeySession, key: str | int) -> Coroutine[Any, Any, bool]: ...

    def unsubscribe(self, session: KeySession, key: str | int) -> Coroutine[Any, Any, bool]: ...

    def close(
        self, key: str | int, *, code: int = CloseCode.NORMAL, reason: str = "closed by key"
    ) -> Coroutine[Any, Any, int]: ...


class BlockingKeys:
    """The same from any other thread than the loop's: in handlers that are plain functions, and in
    views that are no coroutines."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.loop: asyncio.AbstractEventLoop | None = None

    def send(self, key: str | int, data: Any, *, type: str = MESSAGE) -> int:
        """Send by key; how many sessions took it."""
        return self._wait(self._keys.send(key, data, type=type))

    def subscribe(self, session: KeySession, key: str | int) -> bool:
        """Give a session a key."""
        return self._wait(self._keys.subscribe(session, key))

    def unsubscribe(self, session: KeySession, key: str | int) -> bool:
        """Take a key from a session."""
        return self._wait(self._keys.unsubscribe(session, key))

    def close(
        self, key: str | int, *, code: int = CloseCode.NORMAL, reason: str = "closed by key"
    ) -> int:
        """Close all sessions that have a key."""
        return self._wait(self._keys.close(key, code=code, reason=reason))

    def reply(self, session: KeySession, data: Any, *, type: str = MESSAGE, key: str = "") -> bool:
        """Say something to one session."""
        return self._wait(session.send(data, type=type, key=key))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self.loop is None or self.loop.is_closed():
            work.close()
            raise RuntimeError("the hub has not been started")
        if asyncio._get_running_loop() is self.loop:
            work.close()
            raise RuntimeError("this is the hub's own thread: await what the hub itself offers")
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()
