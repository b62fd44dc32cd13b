"""`chappe push app`: who may push, and how much."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from chappe.cli.options import console, print_json
from chappe.cli.push.asker import Asker, administering
from chappe.cli.push.tables import app_view, apps_table
from chappe.errors import ConfigError

app = typer.Typer(help="Apps: make, list, change, remove; new secrets.", no_args_is_help=True)

_PATH = "/v1/push/apps"
_PAGE = 100
_OWNER_ONLY = 0o600
Key = Annotated[str, typer.Argument(help="The app's key.")]
SecretTo = Annotated[
    Path | None,
    typer.Option(help="Write the secret to a file of this name instead, for its owner only."),
]
SendsPerS = Annotated[float | None, typer.Option(help="Notes a second; 0: no limit.")]
DevicesMax = Annotated[int | None, typer.Option(help="Devices it may have; 0: no limit.")]
DeviceNotesPerH = Annotated[
    int | None, typer.Option(help="Notes that a device gets in an hour; 0: no limit.")
]


@app.command("create")
@administering
def create(
    asker: Asker,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    open_: Annotated[
        bool, typer.Option("--open", help="Its devices may take tokens by themselves.")
    ] = False,
    sends_per_s: SendsPerS = None,
    devices_max: DevicesMax = None,
    device_notes_per_h: DeviceNotesPerH = None,
    secret_to: SecretTo = None,
) -> None:
    """Make an app; prints its key and its secret, which is never shown again."""
    with _Safe(secret_to) as safe:
        body = {"name": name, "open": open_}
        limits = _given(sends_per_s, devices_max, device_notes_per_h)
        answer = asker.node().post(_PATH, body | ({"limits": limits} if limits else {}))
        safe.keep(answer)
    _tell_secret(asker, answer, secret_to)


@app.command("list")
@administering
def list_(asker: Asker) -> None:
    """List apps."""
    node, apps = asker.node(), []
    after: str | None = ""
    while after is not None:
        page = node.get(_PATH, after=after, limit=_PAGE)
        apps += page["apps"]
        after = page["next"]
    _show(asker, {"apps": apps}, apps_table(apps))


@app.command("show")
@administering
def show(asker: Asker, key: Key) -> None:
    """Show an app: whether it is open and switched on, and its limits."""
    answer = asker.node().get(_path(key))
    _show(asker, answer, app_view(answer["app"]))


@app.command("change")
@administering
def change(
    asker: Asker,
    key: Key,
    open_: Annotated[
        bool | None,
        typer.Option("--open/--closed", help="Whether devices may take tokens by themselves."),
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Off: nobody logs in, nobody sends.")
    ] = None,
    sends_per_s: SendsPerS = None,
    devices_max: DevicesMax = None,
    device_notes_per_h: DeviceNotesPerH = None,
) -> None:
    """Change an app; what is not said stays."""
    node = asker.node()
    body: dict[str, Any] = {"open": open_, "enabled": enabled}
    if limits := _given(sends_per_s, devices_max, device_notes_per_h):
        body["limits"] = node.get(_path(key))["app"]["limits"] | limits
    body = {name: value for name, value in body.items() if value is not None}
    if not body:
        raise ConfigError("say what is to be changed: --open, --disable, --sends-per-s, ..")
    answer = node.put(_path(key), body)
    _show(asker, answer, app_view(answer["app"]))


@app.command("rotate")
@administering
def rotate(asker: Asker, key: Key, secret_to: SecretTo = None) -> None:
    """Give an app a new secret; what is signed with the old one is refused from now on."""
    with _Safe(secret_to) as safe:
        answer = asker.node().post(f"{_path(key)}/secret", None)
        safe.keep(answer)
    _tell_secret(asker, answer, secret_to)


@app.command("remove")
@administering
def remove(
    asker: Asker,
    key: Key,
    yes: Annotated[bool, typer.Option("--yes", help="Its devices log in no more.")] = False,
) -> None:
    """Remove an app: its devices log in no more, and its notes expire."""
    if not yes:
        raise ConfigError(f"--yes: missing; no device of {key} could log in any more")
    answer = asker.node().delete(_path(key))
    asker.tell(answer, f"[green]ok[/] {key} is removed")


class _Safe:
    """A file for a secret, made before the secret is: one that is shown once must not be lost."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._kept = file is None

    def __enter__(self) -> _Safe:
        if self._file is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            try:
                self._descriptor = os.open(self._file, flags, _OWNER_ONLY)
            except OSError as error:
                raise ConfigError(f"--secret-to: {error}") from None
        return self

    def keep(self, answer: dict[str, Any]) -> None:
        """Put the secret away; it is not in the answer any more."""
        if self._file is not None:
            os.write(self._descriptor, f"{answer.pop('secret')}\n".encode())
            os.fsync(self._descriptor)
            self._kept = True

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._descriptor)
            if not self._kept:
                self._file.unlink(missing_ok=True)


def _tell_secret(asker: Asker, answer: dict[str, Any], file: Path | None) -> None:
    where = f"in {file}" if file is not None else f"{answer['secret']}  [dim]shown this once[/]"
    asker.tell(answer, f"key     {answer['key']}\nsecret  {where}")


def _given(
    sends_per_s: float | None, devices_max: int | None, device_notes_per_h: int | None
) -> dict[str, float]:
    limits = {
        "sends_per_s": sends_per_s,
        "devices_max": devices_max,
        "device_notes_per_h": device_notes_per_h,
    }
    return {name: value for name, value in limits.items() if value is not None}


def _path(key: str) -> str:
    return f"{_PATH}/{quote(key, safe='')}"


def _show(asker: Asker, answer: dict[str, Any], view: Any) -> None:
    if asker.as_json:
        print_json(answer)
    else:
        console.print(view)
