"""Which client is meant: by its id, or by its device's."""

from __future__ import annotations

from typing import Annotated

import typer

from chappe.errors import ConfigError

Client = Annotated[str | None, typer.Option(help="A client, by its id.")]
Device = Annotated[str | None, typer.Option(help="A device, by the id that it made.")]


def which(client: str | None, device: str | None) -> dict[str, str]:
    """What a request says of it; raises ConfigError unless it is one."""
    if (client is None) == (device is None):
        raise ConfigError("say either --client or --device")
    return {"client": client} if client is not None else {"device": device or ""}
