"""Services from both sides: requests that a provider's handler answers, and asking for that."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

from chappe.client.asking import Asking
from chappe.client.connection import Connection
from chappe.client.conversation import Conversation
from chappe.client.event import Phase
from chappe.client.form import Form, check_text, encode_data, read_data
from chappe.client.options import ClientOptions
from chappe.client.provider import Handler, Provider
from chappe.client.standing import Standing
from chappe.errors import BadRequest, ConnectionClosed, ErrorCode, Overload, RequestError
from chappe.wire.ops import Request, Respond, Unprovide

# What the hub takes.
_REASON_CHARACTERS_MAX = 1_000


class Services:
    """The services that one client provides, and its requests to others'."""

    def __init__(
        self,
        conversation: Conversation,
        connection: Connection,
        asking: Asking,
        form: Form,
        options: ClientOptions,
    ) -> None:
        self._conversation = conversation
        self._connection = connection
        self._asking = asking
        self._form = form
        self._options = options
        self._providers: dict[str, Provider] = {}
        # Those that are not provided any more and have not answered everything yet.
        self._retired: set[Provider] = set()
        self.waiting_max = options.calls_waiting_max
        conversation.tenants.append(self)

    @property
    def generation(self) -> int:
        """Which connection it is."""
        return self._conversation.generation

    async def provide(self, service: str, handler: Handler, concurrency: int) -> None:
        """Let a handler answer what is asked of a service."""
        if concurrency < 1:
            raise BadRequest("concurrency: must be 1 or more")
        if service in self._providers:
            raise BadRequest(f"to: this client provides {service} already")
        provider = Provider(self, check_text(service), handler, concurrency)
        self._providers[service] = provider
        self._conversation.providers[service] = provider.call
        try:
            await self._asking.ask(provider.ask(), provider.taken)
        except (asyncio.CancelledError, Overload):
            # The hub may have begun all the same.
            self._say(Unprovide(to=service))
            raise
        finally:
            if not provider.standing:
                self.remove(provider)

    async def unprovide(self, service: str) -> None:
        """Let the hub hand over no more requests; those that it did are answered."""
        provider = self._providers.get(service)
        if provider is None:
            raise BadRequest(f"to: this client does not provide {service}")
        provider.standing = False
        try:
            await self._say_unprovide(service)
        finally:
            self.remove(provider)

    async def _say_unprovide(self, service: str) -> None:
        """Tell the hub; a connection that is lost has ended it as well."""
        op, generation = Unprovide(to=service), self.generation
        if self._conversation.phase is not Phase.READY:
            self._say(op)
            return
        try:
            await self._asking.ask(op)
        except RequestError:
            if self._conversation.phase is Phase.READY and generation == self.generation:
                raise

    async def request(
        self, service: str, data: Any, timeout_s: float | None, idempotent: bool
    ) -> Any:
        """Ask a service."""
        fields: dict[str, Any] = {"to": check_text(service), "idempotent": idempotent}
        if timeout_s is not None:
            if not 0 < timeout_s < math.inf:
                raise BadRequest("timeout_s: must be above 0")
            fields["timeout_ms"] = round(timeout_s * 1000)
        limit_s = self._asking.timeout_s if timeout_s is None else timeout_s
        payload = encode_data(data)
        return read_data(await self._asking.ask_carrying(Request, fields, *payload, limit_s))

    async def close(self) -> None:
        """Provide nothing more, and give the handlers a while to finish; then cancel them."""
        try:
            async with asyncio.timeout(self._options.close_timeout_s):
                for service in list(self._providers):
                    await self._withdraw(service)
                while running := self._running():
                    await asyncio.wait(running)
        except TimeoutError:
            pass
        finally:
            running = self._running()
            for task in running:
                task.cancel()
        if running:
            await asyncio.wait(running)

    async def _withdraw(self, service: str) -> None:
        # Without a connection there is nothing to withdraw.
        with contextlib.suppress(RequestError, ConnectionClosed):
            await self.unprovide(service)

    def remove(self, provider: Provider) -> None:
        """Take no more requests for a service."""
        if self._providers.get(provider.service) is provider:
            del self._providers[provider.service], self._conversation.providers[provider.service]
            provider.standing = False
            if provider.busy:
                self._retired.add(provider)

    def respond(self, request: Request, generation: int, payload: bytes, binary: bool) -> None:
        """Answer a request, unless its connection is gone."""
        fields = {"request": request.request}
        body = self._form.carry(Respond, fields, payload, binary)
        if len(body) > self._options.message_bytes_max:
            self.respond_error(
                request, generation, BadRequest(f"data: a response of {len(payload)} bytes")
            )
        elif generation == self.generation:
            self._conversation.answer(body)

    def respond_error(self, request: Request, generation: int, error: BaseException) -> None:
        """Answer a request with an error; one that is not meant for others stays here."""
        if isinstance(error, RequestError):
            code, reason = error.code, error.reason[:_REASON_CHARACTERS_MAX]
        else:
            code, reason = ErrorCode.UNREACHABLE, "the provider failed"
            context = {"message": f"a handler of {request.to} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        if generation == self.generation:
            self._say(Respond(request=request.request or "", error=code, reason=reason))

    def _say(self, op: Unprovide | Respond) -> None:
        """Say something on this connection and on no other, if there is one."""
        self._conversation.answer(self._form.encode(op))
        self._connection.writer.flush_soon()

    def settle(self) -> None:
        """A request was answered: write it, and see what follows."""
        self._retired = {provider for provider in self._retired if provider.busy}
        self._connection.settle()

    @property
    def busy(self) -> bool:
        """Whether any request is not answered yet."""
        return any(provider.busy for provider in (*self._providers.values(), *self._retired))

    def wishes(self) -> list[Standing]:
        """What is to be said on a new connection."""
        return [provider for provider in self._providers.values() if provider.standing]

    def leave(self) -> None:
        """This connection is about to be left: take no more requests on it."""
        for provider in self._providers.values():
            self._say(Unprovide(to=provider.service))

    def lose(self) -> None:
        """The connection is gone."""
        for provider in (*self._providers.values(), *self._retired):
            provider.lose()

    def end(self, reason: ConnectionClosed) -> None:
        """There will be no other: what runs is not needed any more."""
        for task in self._running():
            task.cancel()

    def _running(self) -> set[asyncio.Task[Any]]:
        providers = (*self._providers.values(), *self._retired)
        return {task for provider in providers for task in provider.running}
