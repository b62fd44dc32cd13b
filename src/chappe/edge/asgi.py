"""Sessions inside somebody else's web application: an ASGI app that is mounted in it.

The server (uvicorn, granian, hypercorn) has the connection and makes the frames; it also asks for
signs of life. What a session gets is handed over a message at a time, at once where the server
takes it at once, and by a task of the session's where it has to be waited for: then the session is
paused, and what comes waits in its backlog, bounded as everywhere.

    scope websocket  connect -> handshake -> accept -> text, bytes -> handlers
    scope lifespan   the hub starts and stops with the server, where nobody else does that
    scope http       the application behind it, or a short refusal
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, MutableMapping
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Protocol

import structlog

from chappe.edge.origin import Origins
from chappe.edge.uvicorn import frame_transport
from chappe.errors import ABNORMAL, CloseCode, Overload
from chappe.keys.serving import Serving
from chappe.keys.session import Handshake, KeySession
from chappe.wire.websocket import TEXT, close_reason, split_frames

log = structlog.get_logger()

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

# As much as a transport takes before it pauses, and what is left when it goes on.
_HIGH_BYTES, _LOW_BYTES = 64 * 1024, 16 * 1024
# Only chunks up to this size are remembered in parts.
_PARTS_BYTES_MAX = 64 * 1024
# What servers raise when they are told to send to somebody who has gone.
_GONE = (OSError, RuntimeError)


class Host(Protocol):
    """Who runs the hub that is mounted."""

    async def serving(self) -> Serving:
        """What serves sessions, started if nobody has done that."""
        ...

    async def start(self) -> object:
        """Start it."""
        ...

    async def stop(self) -> None:
        """Stop it."""
        ...


class AsgiApp:
    """An ASGI application: WebSockets below a path are sessions, the rest is another's."""

    def __init__(self, host: Host, origins: Origins, inner: Asgi | None, path: str) -> None:
        self._host = host
        self._origins = origins
        self._inner = inner
        self._path = path.rstrip("/")
        self._parts = Parts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(receive, send)
        elif kind == "websocket" and (path := self._below(scope)) is not None:
            await self._serve(scope, path, receive, send)
        elif self._inner is not None:
            await self._inner(scope, receive, send)
        elif kind == "http":
            await _answer(send, 426, "this is for WebSockets")
        else:
            await receive()
            await send({"type": "websocket.close", "code": CloseCode.NORMAL})

    def _below(self, scope: Scope) -> str | None:
        """The path of a session, below where this is mounted; None if it is elsewhere."""
        path, root = str(scope["path"]), str(scope.get("root_path", ""))
        if root and (path == root or path.startswith(root.rstrip("/") + "/")):
            path = path[len(root.rstrip("/")) :]
        if path != self._path and not path.startswith(self._path + "/"):
            return None
        return path[len(self._path) :] or "/"

    async def _live(self, receive: Receive, send: Send) -> None:
        """The server's own start and stop; who is behind this is not told of them."""
        await receive()
        try:
            await self._host.start()
        except Exception as error:  # whatever it is, the server is to say it and end
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._host.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        event = await receive()
        if event["type"] != "websocket.connect":
            return
        serving = await self._host.serving()
        handshake = _handshake(scope, path)
        refused = self._origin_refusal(handshake) or await serving.refusal(handshake)
        if refused is not None:
            await _refuse(scope, send, 403, refused)
            return
        sink = AsgiSink(serving, send, self._parts)
        try:
            session = serving.open("asgi", sink, handshake, beats=False)
        except Overload as full:
            await _refuse(scope, send, 503, full.reason)
            return
        sink.session = session
        code = ABNORMAL
        try:
            await send({"type": "websocket.accept"})
            sink.transport = frame_transport(receive, send)
            code = await self._talk(serving, sink, session, receive)
        except _GONE:
            pass  # it left while it was let in
        finally:
            serving.broker.lost(session, code)
            await sink.finish()

    def _origin_refusal(self, handshake: Handshake) -> str | None:
        origin = handshake.headers.get("origin")
        if self._origins.allow(origin) or _same(origin, handshake.headers.get("host", "")):
            return None
        return "this origin may not connect"

    async def _talk(
        self, serving: Serving, sink: AsgiSink, session: KeySession, receive: Receive
    ) -> int:
        """Hand what a session says to its handlers, one after the other; its last code."""
        sink.start()
        await serving.connected(session)
        while True:
            event = await sink.read(receive)
            if event["type"] == "websocket.disconnect":
                return int(event.get("code") or ABNORMAL)
            if session.closed:
                continue  # it has been told; what it says until it has read that is not heard
            text, data = event.get("text"), event.get("bytes")
            # A character has up to four bytes: most texts need not be encoded to be measured.
            size = len(data or b"") if text is None else len(text)
            if text is not None and 4 * size > serving.bytes_max >= size:
                size = len(text.encode())
            if size > serving.bytes_max:
                reason = f"message of more than {serving.bytes_max} bytes"
                serving.broker.end(session, CloseCode.MESSAGE_TOO_BIG, reason)
            elif text is not None:
                await serving.take_text(session, text)
            else:
                await serving.take_binary(session, bytes(data or b""))


class Parts:
    """The messages of a chunk as servers want them, taken apart once for all who get the same."""

    __slots__ = ("_chunk", "_parts")

    def __init__(self) -> None:
        self._chunk = b""
        self._parts: list[tuple[str, str | bytes]] = []

    def of(self, chunk: bytes) -> list[tuple[str, str | bytes]]:
        """Each message: what kind it is, and itself."""
        if chunk is self._chunk:
            return self._parts
        parts: list[tuple[str, str | bytes]] = [
            ("text", payload.decode()) if opcode == TEXT else ("bytes", payload)
            for opcode, payload in split_frames(chunk)
        ]
        if len(chunk) <= _PARTS_BYTES_MAX:
            self._chunk, self._parts = chunk, parts
        return parts


class AsgiSink:
    """Where a session's bytes go: to the server, a write at a time.

    The first step of a write is taken by whoever writes, and mostly there is no other: a server
    whose buffer has room does not wait for anything. Where it does wait, the session's task goes on
    from there, and until it is done all else waits its turn.
    """

    __slots__ = (
        "_aborted",
        "_begun",
        "_busy",
        "_bytes",
        "_chunks",
        "_closing",
        "_context",
        "_loop",
        "_parts",
        "_paused",
        "_reader",
        "_send",
        "_serving",
        "_task",
        "_waiter",
        "session",
        "transport",
    )

    session: KeySession

    def __init__(self, serving: Serving, send: Send, parts: Parts) -> None:
        self._serving = serving
        self._send = send
        self._parts = parts
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._paused = False
        # Whether something is being handed over or waits for that, and how to go on with it.
        self._busy = True
        self._begun: Coroutine[Any, Any, None] | None = None
        self._closing: tuple[int, str] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._context: Context
        # Whoever waits for the session to say something, while it does.
        self._reader: asyncio.Task[Any] | None = None
        self._aborted = False
        # Past the server's own framing, where that is possible.
        self.transport: asyncio.WriteTransport | None = None

    async def read(self, receive: Receive) -> Event:
        """What the session says next; that it has gone, when it was cut off."""
        if not self._cut_off():
            self._reader = reader = asyncio.current_task()
            assert reader is not None
            try:
                return await receive()
            except asyncio.CancelledError:
                # Unless somebody else wants it to end, too.
                if not self._cut_off() or reader.uncancel():
                    raise
            finally:
                self._reader = None
        return {"type": "websocket.disconnect", "code": ABNORMAL}

    def _cut_off(self) -> bool:
        return self._aborted

    def start(self) -> None:
        """Begin to write."""
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._task = self._loop.create_task(self._run(), context=self._context)

    async def finish(self) -> None:
        """The connection is over: end what is still writing, unless it is about to end."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    def write(self, data: bytes) -> None:
        busy, transport = self._busy, self.transport
        if (
            transport is not None
            and not busy
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        ):
            transport.write(data)
            return
        self._bytes += len(data)
        if busy or asyncio.current_task(self._loop) is not None:
            self._busy = True
            self._chunks.append(data)
            self._wake()
        else:
            self._begin(data)
        if self._bytes > _HIGH_BYTES and not self._paused:
            self._paused = True
            self._serving.broker.pause(self.session)

    def ping(self) -> None:
        """The server's affair."""

    def close(self, code: int, reason: str) -> None:
        self._closing = (code, reason)
        self._wake()

    def abort(self) -> None:
        """Its reader does not read: the server is let go of it, and cuts it off."""
        self._aborted = True
        self._chunks.clear()
        if self._reader is not None:
            self._reader.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _begin(self, chunk: bytes) -> None:
        """Hand over as much as the server takes without waiting; the task does the rest.

        What runs here is the task's for all that can be seen of it: its context, its name. The loop
        is between two tasks, so that nobody else's is hidden.
        """
        assert self._task is not None
        work = self._hand_over(chunk)
        self._busy = True
        asyncio._enter_task(self._loop, self._task)
        try:
            waits_for = self._context.run(work.send, None)
        except StopIteration:
            self._busy = bool(self._chunks)
            if not self._busy and self._closing is None:
                return
        except (Exception, asyncio.CancelledError) as error:
            self._begun = _raise(error)
        else:
            self._begun = _go_on(work, waits_for)
        finally:
            asyncio._leave_task(self._loop, self._task)
        self._wake()

    async def _run(self) -> None:
        loop, chunks = asyncio.get_running_loop(), self._chunks
        try:
            while True:
                self._busy = True
                if self._begun is not None:
                    begun, self._begun = self._begun, None
                    await begun
                while chunks:
                    await self._hand_over(chunks.popleft())
                if self._closing is not None:
                    await self._say_goodbye(*self._closing)
                    return
                self._busy = False
                self._waiter = loop.create_future()
                await self._waiter
        except _GONE:
            self._serving.broker.lost(self.session, ABNORMAL)

    async def _hand_over(self, chunk: bytes) -> None:
        send = self._send
        for kind, payload in self._parts.of(chunk):
            await send({"type": "websocket.send", kind: payload})
        self._bytes -= len(chunk)
        if self._paused and self._bytes <= _LOW_BYTES:
            self._paused = False
            # It may write again at once, what waited meanwhile.
            self._serving.broker.resume(self.session)

    async def _say_goodbye(self, code: int, reason: str) -> None:
        said = close_reason(reason).decode()
        await self._send({"type": "websocket.close", "code": int(code), "reason": said})


async def _raise(error: BaseException) -> None:
    raise error


@coroutine
def _go_on(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Carry on with a coroutine whose first step was taken, and which waits for something."""
    while True:
        thrown: BaseException | None = None
        try:
            yield waits_for
        except BaseException as error:  # whatever it is, it is the coroutine's
            thrown = error
        try:
            waits_for = work.send(None) if thrown is None else work.throw(thrown)
        except StopIteration:
            return


def _handshake(scope: Scope, path: str) -> Handshake:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    client = scope.get("client")
    query = bytes(scope.get("query_string", b"")).decode("latin-1")
    return Handshake(path, query, headers, f"{client[0]}:{client[1]}" if client else "")


def _same(origin: str | None, host: str) -> bool:
    """Whether a page comes from the host that it connects to."""
    return origin is not None and origin.partition("://")[2].lower() == host.lower() != ""


async def _refuse(scope: Scope, send: Send, status: int, reason: str) -> None:
    if "websocket.http.response" in scope.get("extensions", {}):
        await _answer(send, status, reason, "websocket.http.response")
    else:
        await send({"type": "websocket.close", "code": CloseCode.POLICY_VIOLATION})


async def _answer(send: Send, status: int, reason: str, kind: str = "http.response") -> None:
    body = f"{reason}\n".encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
