"""A provider: one service and the handler that answers its requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from chappe.client.form import encode_data, read_data
from chappe.client.notice import Notice, Stopped
from chappe.errors import BadRequest, Overload, RemoteProtocolError, RequestError
from chappe.wire.ops import Provide, Reply, Request

if TYPE_CHECKING:
    from chappe.client.service import Services

# Gets the data of a request and returns that of the response, or an awaitable of it.
Handler = Callable[[Any], Any | Awaitable[Any]]


class Provider:
    """One service and its handler, with a bounded number of calls at a time."""

    def __init__(
        self, services: Services, service: str, handler: Handler, concurrency: int
    ) -> None:
        self._services = services
        self._handler = handler
        self._concurrency = concurrency
        self._waiting: deque[tuple[Request, int]] = deque()
        self._loop = asyncio.get_running_loop()
        self.service = service
        self.running: set[asyncio.Task[Any]] = set()
        # Whether the hub has taken it, so that it is said again on a new connection.
        self.standing = False

    @property
    def busy(self) -> bool:
        """Whether any request is not answered yet."""
        return bool(self.running or self._waiting)

    def call(self, request: Request) -> None:
        """Answer a request, now or when a handler is free."""
        generation = self._services.generation
        if len(self.running) < self._concurrency:
            self._start(request, generation)
        elif len(self._waiting) < self._services.waiting_max:
            self._waiting.append((request, generation))
        else:
            error = Overload(f"{len(self._waiting)} requests wait already")
            self._services.respond_error(request, generation, error)

    def lose(self) -> None:
        """The connection is gone, and with it who waits for answers; what runs may finish."""
        self._waiting.clear()

    def _start(self, request: Request, generation: int) -> None:
        task = self._loop.create_task(self._handle(request))
        self.running.add(task)
        task.add_done_callback(lambda task: self._done(task, request, generation))

    async def _handle(self, request: Request) -> Any:
        try:
            data = read_data(request)
        except RemoteProtocolError as error:
            raise BadRequest(error.reason) from None
        answer = self._handler(data)
        return encode_data(await answer if isawaitable(answer) else answer)

    def _done(self, task: asyncio.Task[Any], request: Request, generation: int) -> None:
        self.running.discard(task)
        if task.cancelled():
            error: BaseException | None = Overload("the provider is closing")
        else:
            error = task.exception()
        if error is None:
            self._services.respond(request, generation, *task.result())
        else:
            self._services.respond_error(request, generation, error)
        if self._waiting:
            self._start(*self._waiting.popleft())
        self._services.settle()

    @property
    def wanted(self) -> bool:
        """Whether it is still to be provided."""
        return self.standing

    def ask(self) -> Provide:
        """What to say to the hub."""
        return Provide(to=self.service)

    def taken(self, reply: Reply) -> None:
        """The hub hands requests over."""
        self.standing = True

    def refused(self, error: RequestError) -> Notice:
        """The hub hands over no more, after a reconnect."""
        self._services.remove(self)
        return Stopped(self.service, error)
