"""Sessions inside somebody else's web application: an ASGI app that is mounted in it.

The server (uvicorn, granian, hypercorn) has the connection and makes the frames; it also asks for
signs of life. What a session gets is handed over by one task, a message at a time: when the server
does not take it, the session is paused, and what comes waits in its backlog, bounded as everywhere.
Where a server's transport takes whole frames (`uvicorn.py`), they are written to it at once.

    scope websocket  connect -> handshake -> accept -> text, bytes -> handlers
    scope lifespan   the hub starts and stops with the server, where nobody else does that
    scope http       the application behind it, or a short refusal
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, Protocol

import structlog

from chappe.edge.origin import Origins, same_host
from chappe.edge.uvicorn import frame_transport
from chappe.errors import ABNORMAL, ChappeError, CloseCode, Overload
from chappe.keys.inbox import Inbox
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
# How long handlers may take to come to anything of a session that has said more than may wait.
_STUCK_S = 15.0
# How long somebody may take to read what was sent before a goodbye.
_GOODBYE_S = 10.0


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
        self._late: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(scope, receive, send)
        elif kind == "websocket" and (path := self._below(scope)) is not None:
            await self._serve(scope, path, receive, send)
        elif self._inner is not None:
            await self._ensure_started()
            await self._inner(scope, receive, send)
        elif kind == "http":
            await _answer(send, 426, "this is for WebSockets")
        else:
            await receive()
            await send({"type": "websocket.close", "code": CloseCode.NORMAL})

    def _below(self, scope: Scope) -> str | None:
        """The path of a session, below where this is mounted; None if it is elsewhere."""
        path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
        if not _is_below(path, root):
            # A proxy took off what the application is told to be below of.
            root = root.removeprefix(str(scope.get("app_root_path", "")).rstrip("/"))
        if root and _is_below(path, root):
            path = path[len(root) :]
        return (path[len(self._path) :] or "/") if _is_below(path, self._path) else None

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The server's own start and stop: the hub's, and that of who is behind this, if it has
        any, in between."""
        first = await receive()
        try:
            await self._host.start()
        except Exception as error:  # whatever it is, the server is to say it and end
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        inner = _Inner(self._host, first, receive, send)
        try:
            if self._inner is not None:
                await inner.live(self._inner, scope)
            if not inner.answered:
                await send({"type": "lifespan.startup.complete"})
                await receive()
        finally:
            await self._host.stop()
        if not inner.answered:
            await send({"type": "lifespan.shutdown.complete"})

    async def _ensure_started(self) -> None:
        """Where a server tells nobody that it starts, the first to come are as good."""
        try:
            await self._host.serving()
        except ChappeError as error:
            log.error("asgi.not.started", reason=str(error))

    async def _serve(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        event = await receive()
        if event["type"] != "websocket.connect":
            return
        try:
            serving = await self._host.serving()
        except ChappeError as error:
            log.error("asgi.not.started", reason=str(error))
            await _refuse(scope, send, 503, "not possible now")
            return
        handshake = _handshake(scope, path)
        refused = self._origin_refusal(handshake) or await serving.refusal(handshake)
        if refused is not None:
            await _refuse(scope, send, 403, refused)
            return
        sink = AsgiSink(serving, receive, send, self._parts)
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
            code = await sink.run(self._talk(serving, sink, session))
        except OSError:
            pass  # it left while it was let in
        finally:
            serving.broker.lost(session, code)
            await sink.finish(self._late)

    def _origin_refusal(self, handshake: Handshake) -> str | None:
        origin = handshake.headers.get("origin")
        if self._origins.allow(origin) or same_host(origin, handshake.headers.get("host", "")):
            return None
        return "this origin may not connect"

    async def _talk(self, serving: Serving, sink: AsgiSink, session: KeySession) -> int:
        """Hear what a session says, for its handlers to come to, until it goes; its last code."""
        room = asyncio.Event()
        inbox = Inbox(serving, self._run, room.set)
        inbox.begin(session)
        while True:
            event = await sink.read()
            if event is None:
                return ABNORMAL
            if event["type"] == "websocket.disconnect":
                sink.left()
                return int(event.get("code") or ABNORMAL)
            if session.closed:
                continue  # it is being told; what it says until then is not heard
            text, data = event.get("text"), event.get("bytes")
            # A character has up to four bytes: most texts need not be encoded to be measured.
            size = len(data or b"") if text is None else len(text)
            if text is not None and 4 * size > serving.bytes_max >= size:
                size = len(text.encode())
            if size > serving.bytes_max:
                reason = f"message of more than {serving.bytes_max} bytes"
                serving.broker.end(session, CloseCode.MESSAGE_TOO_BIG, reason)
            elif not inbox.put(bytes(data or b"") if text is None else text):
                room.clear()
                if not await sink.wait(room):
                    reason = "what it says is not come to"
                    serving.broker.end(session, CloseCode.TRY_AGAIN_LATER, reason)

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let handlers go on, though their session may go."""
        task = asyncio.create_task(work)
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        return task


class _Inner:
    """The start and stop of an application that is inside another."""

    def __init__(self, host: Host, first: Event, receive: Receive, send: Send) -> None:
        self._host = host
        self._first: Event | None = first
        self._receive_next = receive
        self._send_on = send
        # Whether it said anything: there are those who know of no such thing.
        self.answered = False

    async def live(self, inner: Asgi, scope: Scope) -> None:
        """Let it start, live and stop."""
        try:
            await inner(scope, self._receive, self._send)
        except Exception:
            if self.answered:
                raise

    async def _receive(self) -> Event:
        first, self._first = self._first, None
        return await self._receive_next() if first is None else first

    async def _send(self, event: Event) -> None:
        self.answered = True
        if event["type"].startswith("lifespan.shutdown."):
            await self._host.stop()
        await self._send_on(event)


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
    """Where a session's bytes go: to the server, by one task, a write at a time.

    Another task hears what the session says. Both are ours: there are servers whose own can be
    neither cancelled nor timed. When a session is to be closed nobody listens to it any more, as
    there are servers that do not say goodbye to whom they are being asked about.
    """

    __slots__ = (
        "_aborted",
        "_busy",
        "_bytes",
        "_chunks",
        "_closing",
        "_heard",
        "_over",
        "_parts",
        "_paused",
        "_receive",
        "_send",
        "_serving",
        "_talk",
        "_timer",
        "_waiter",
        "_writer",
        "session",
        "transport",
    )

    session: KeySession

    def __init__(self, serving: Serving, receive: Receive, send: Send, parts: Parts) -> None:
        # Where whole frames may be written, past the server's own framing.
        self.transport: asyncio.WriteTransport | None = None
        self._serving = serving
        self._parts = parts
        self._receive = receive
        self._send = send
        self._chunks: deque[bytes] = deque()
        self._bytes = 0
        self._paused = False
        # Whether something is being handed over, or is about to be.
        self._busy = True
        self._closing: tuple[int, str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._talk: asyncio.Task[int] | None = None
        # Set while nobody waits for the session to say something.
        self._heard = asyncio.Event()
        self._heard.set()
        # Nothing that it says is of interest any more; nor does it get any more.
        self._over = self._aborted = False

    async def run(self, talk: Coroutine[Any, Any, int]) -> int:
        """Write, and talk, until that ends."""
        self._writer = asyncio.create_task(self._write_all())
        self._talk = asyncio.create_task(talk)
        try:
            await asyncio.wait([self._talk])
        finally:
            self._talk.cancel()
        return self._talk.result()

    async def read(self) -> Event | None:
        """What the session says next; None when it is not listened to any more."""
        if self._is_over():
            return None
        self._heard.clear()
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if not self._is_over():
                raise
            return None
        finally:
            self._heard.set()

    async def wait(self, room: asyncio.Event) -> bool:
        """Wait for room for what it said; False when there is none for long.

        Until then nobody hears whether it has gone: a server tells that behind all it said.
        """
        self._heard.clear()
        try:
            async with asyncio.timeout(_STUCK_S):
                await room.wait()
        except TimeoutError:
            return False
        except asyncio.CancelledError:
            if not self._is_over():
                raise
        finally:
            self._heard.set()
        return True

    def _is_over(self) -> bool:
        return self._over

    def _stop_listening(self) -> None:
        if not self._over:
            self._over = True
            if self._talk is not None and not self._heard.is_set():
                self._talk.cancel()

    def left(self) -> None:
        """It has gone: nothing is of use to it any more."""
        self._aborted = True

    async def finish(self, late: set[asyncio.Task[None]]) -> None:
        """The talk is over: wait for a goodbye that is being said.

        What a server is sending is not cancelled, as granian does not end such a connection: when
        it is taken after all, a goodbye follows. It is one of the `late` until then.
        """
        writer = self._writer
        if writer is not None and not writer.done():
            if self._waiter is not None and not self._waiter.done():
                writer.cancel()
            elif not self._aborted:
                await asyncio.wait([writer], timeout=_GOODBYE_S)
            self._aborted = True
            late.add(writer)
            writer.add_done_callback(late.discard)
        if self._timer is not None:
            self._timer.cancel()

    def write(self, data: bytes) -> None:
        transport = self.transport
        if (
            transport is not None
            and not self._busy
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        ):
            transport.write(data)
            return
        self._busy = True
        self._chunks.append(data)
        self._bytes += len(data)
        if self._bytes > _HIGH_BYTES and not self._paused:
            self._paused = True
            self._serving.broker.pause(self.session)
        self._wake()

    def ping(self) -> None:
        """The server's affair."""

    def close(self, code: int, reason: str) -> None:
        self._closing = (code, reason)
        self._timer = asyncio.get_running_loop().call_later(_GOODBYE_S, self.abort)
        self._wake()

    def abort(self) -> None:
        """Its reader does not read: the server is let go of it, and cuts it off."""
        self._aborted = True
        self._chunks.clear()
        self._stop_listening()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _write_all(self) -> None:
        loop, chunks = asyncio.get_running_loop(), self._chunks
        try:
            while True:
                while chunks:
                    await self._hand_over(chunks.popleft())
                if self._aborted and self._closing is None:
                    return
                if self._closing is not None:
                    self._stop_listening()
                    await self._heard.wait()
                    await self._say_goodbye(*self._closing)
                    return
                self._busy = False
                self._waiter = loop.create_future()
                await self._waiter
        except OSError:
            self._lose()
        except Exception as error:  # whatever the server says to that, it cannot be sent to
            if not self._aborted:
                log.warning("asgi.send.failed", error=repr(error))
            self._lose()

    def _lose(self) -> None:
        self._aborted = True
        self._serving.broker.lost(self.session, ABNORMAL)
        self._stop_listening()

    async def _hand_over(self, chunk: bytes) -> None:
        for kind, payload in self._parts.of(chunk):
            await self._send({"type": "websocket.send", kind: payload})
        self._bytes -= len(chunk)
        if self._paused and self._bytes <= _LOW_BYTES:
            self._paused = False
            # It may write again at once, what waited meanwhile.
            self._serving.broker.resume(self.session)

    async def _say_goodbye(self, code: int, reason: str) -> None:
        said = close_reason(reason).decode()
        await self._send({"type": "websocket.close", "code": int(code), "reason": said})


def _handshake(scope: Scope, path: str) -> Handshake:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    client = scope.get("client")
    query = bytes(scope.get("query_string", b"")).decode("latin-1")
    return Handshake(path, query, headers, f"{client[0]}:{client[1]}" if client else "")


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


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
