"""`chappe push listen`: a device that prints what it gets."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from chappe.cli.api import NodeUnreachable
from chappe.cli.options import console, print_json
from chappe.cli.push.asker import AppAsker, asking
from chappe.cli.push.tables import plain
from chappe.device import Device, Grant, Note, Retraction, decode_grant
from chappe.errors import ConfigError, Unreachable


@asking
def listen(
    asker: AppAsker,
    device: Annotated[str, typer.Option(help="The device's id: anything that is its own.")],
    topic: Annotated[
        list[str] | None, typer.Option(help="Subscribe to it; may be repeated.")
    ] = None,
    count: Annotated[int, typer.Option("--n", "-n", help="End after so many; 0 never.")] = 0,
    click: Annotated[
        bool, typer.Option("--click", help="Tell of each that its user clicked it.")
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(help="Keep token and ids of what was shown in a file, as devices do."),
    ] = None,
) -> None:
    """Be a device: connect, print notes as they come, and acknowledge them.

    A device of an app that is not open gets its token by the app's secret.
    """
    if count < 0:
        raise ConfigError("--n: must not be below 0")
    tls = ssl.create_default_context(cafile=asker.ca) if asker.ca else None
    made = Device(
        app=asker.key,
        device=device,
        web=asker.http,
        cache=cache,
        grants=granting(asker, device),
        tls=tls,
    )
    listener = _Listener(made, tuple(topic or ()), count, click=click, as_json=asker.as_json)
    asyncio.run(listener.listen())


def granting(asker: AppAsker, device: str) -> Callable[[], Awaitable[Grant]]:
    """Where grants come from: the app's server, which this is if it has the secret; or the web."""
    node = asker.node()

    def ask() -> Grant:
        if asker.vouches:
            answer = node.post("/v1/push/tokens", {"device": device})
        else:
            answer = node.post("/v1/push/devices", {"app": asker.key, "device": device})
        return decode_grant(json.dumps(answer).encode())

    # Asked for at once: a device waits quietly for a web that is away, and a person does not.
    grants = [ask()]

    async def grant() -> Grant:
        if grants:
            return grants.pop()
        try:
            return await asyncio.to_thread(ask)
        except NodeUnreachable as error:
            raise Unreachable(str(error)) from None

    return grant


class _Listener:
    """Prints what a device gets."""

    def __init__(
        self, device: Device, topics: tuple[str, ...], count: int, *, click: bool, as_json: bool
    ) -> None:
        self._device = device
        self._topics = topics
        self._left = count
        self._click = click
        self._as_json = as_json

    async def listen(self) -> None:
        """Print until there were enough; raises what ended the device."""
        async with self._device as device:
            await device.wait_connected()
            if self._topics:
                await device.subscribe(*self._topics)
            # Not on standard output, which is for notes.
            with suppress(OSError):
                sys.stderr.write("connected\n")
                sys.stderr.flush()
            async for what in device:
                self._print(what)
                if not isinstance(what, Note):
                    continue
                if self._click:
                    await device.click(what)
                self._left -= 1
                if self._left == 0:
                    return
        if device.ended is not None:
            raise device.ended

    def _print(self, what: Note | Retraction) -> None:
        if self._as_json:
            print_json(note_json(what))
        else:
            console.print(note_line(what), soft_wrap=True)


def note_json(what: Note | Retraction) -> dict[str, Any]:
    """What came, for machines: content as text if it is text, else in base64."""
    if isinstance(what, Retraction):
        return {"retracted": what.note, "note": what.id, "ts": what.sent_ms}
    told = {"note": what.id, "job": what.job, "type": what.type, "ts": what.sent_ms}
    try:
        return told | {"data": what.content.decode()}
    except UnicodeDecodeError:
        return told | {"data64": base64.b64encode(what.content).decode()}


def note_line(what: Note | Retraction) -> Text:
    """What came, for a person; a stranger's text is shown as text, whatever it holds."""
    at = datetime.fromtimestamp(what.sent_ms / 1000).strftime("%H:%M:%S.%f")[:-3]
    line = Text.assemble((at, "dim"), " ", (plain(what.id), "cyan"))
    if isinstance(what, Retraction):
        return line.append(f" takes back {plain(what.note)}", "yellow")
    if what.type:
        line.append(f" type={what.type}")
    try:
        shown = plain(what.content.decode())
    except UnicodeDecodeError:
        shown = f"{len(what.content)} bytes"
    return line.append(f"  {shown}")
