"""A device that does what no SDK would: frames on a socket, said and heard one by one."""

from __future__ import annotations

import base64
import os
import ssl
import time
from collections import deque
from typing import Any, Self

from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Command,
    Error,
    ExchangeKey,
    GetMessageList,
    Message,
    MessageList,
    Ok,
    Response,
    Splitter,
    decode_response,
    encode_command,
)
from chappe.wire.pushcipher import DeviceAgreement, Opening

from .peer import dial
from .push_layout import AppKey, PushProcess


class DevicePeer:
    """One connection to a comet, with what web or admin gave its device."""

    def __init__(self, ticket: dict[str, Any], comet: str = "", tls: ssl.SSLContext | None = None):
        self.client: str = ticket["client"]
        self.token: str = ticket["token"]
        sock = dial(comet or ticket["comet"])
        self.sock = tls.wrap_socket(sock, server_hostname="127.0.0.1") if tls else sock
        identity = base64.b64decode(ticket["identity"])
        self._agreement = DeviceAgreement(self.client, os.urandom(32), identity)
        self._key: Opening | None = None
        self._splitter = Splitter()
        self._heard: deque[Response] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def say(self, *commands: Command) -> None:
        self.sock.sendall(b"".join(map(encode_command, commands)))

    def hear(self) -> Response | None:
        """The next that the comet says; None if it hung up."""
        while not self._heard:
            try:
                data = self.sock.recv(65_536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._heard.extend(map(decode_response, self._splitter.feed(data)))
        return self._heard.popleft()

    def hear_error(self) -> Error:
        """The next, which must be an error."""
        error = self.hear()
        assert isinstance(error, Error), error
        return error

    def sent_away(self) -> Error:
        """The error that the comet says before it hangs up."""
        error = self.hear_error()
        assert self.hear() is None
        return error

    def auth(self) -> None:
        self.say(Auth(self.client, self.token))

    def agree(self) -> None:
        """Take the comet's part of the key, and say the device's."""
        offered = self.hear()
        assert isinstance(offered, AuthSuccess), offered
        self._key = self._agreement.agree(offered.encrypt_key)
        self.say(ExchangeKey(self._agreement.secret_key))
        assert self.hear() == Ok()

    def login(self) -> Self:
        """Log in, and read what waits."""
        self.auth()
        self.agree()
        self.say(GetMessageList())
        self.waiting = self.notes()
        return self

    def notes(self) -> list[bytes]:
        """What the next message, or list of them, holds."""
        said = self.hear()
        assert isinstance(said, Message | MessageList), said
        assert self._key is not None
        some = (said.message,) if isinstance(said, Message) else said.messages
        return [self._key.open(each.head, each.encrypted_content) for each in some]


def take_ticket(web: PushProcess, app: AppKey, device: str) -> dict[str, Any]:
    """What a device of an open app gets of the web."""
    body = {"app": app.key, "device": device}
    deadline = time.monotonic() + 20
    while True:
        status, said = web.ask("POST", "/v1/push/devices", body)
        # One that has just begun may know of no comet yet.
        if status != 503 or time.monotonic() > deadline:
            assert status == 200, said
            return said
        time.sleep(0.05)


def send(admin: PushProcess, app: AppKey, **fields: object) -> dict[str, Any]:
    """Have a note sent, which must be answered."""
    status, said = app.post(admin, "/v1/push/send", **fields)
    assert status == 200, said
    return said
