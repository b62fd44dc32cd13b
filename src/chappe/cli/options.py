"""Options that every command which talks to a node takes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from chappe.cli.api import NodeApi, Proof
from chappe.errors import ConfigError

# A name such as :imp: is one, and no picture.
console = Console(emoji=False)

Http = Annotated[str, typer.Option("--http", help="The node's HTTP address.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the token; or set CHAPPE_TOKEN. Not needed with --dev."),
]
Ca = Annotated[Path | None, typer.Option(help="A certificate authority to trust, in PEM form.")]
As = Annotated[str, typer.Option("--as", help="Who to be, where no token says it (--dev).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]

HTTP = "http://127.0.0.1:7401"
_TOKEN = re.compile(r"[A-Za-z0-9_.=-]+")


def api(
    http: str,
    token_file: Path | None,
    ca: Path | None,
    token: str | None,
    proof: Proof | None = None,
) -> NodeApi:
    """The node's API, with a token from a file or from the environment, never from a flag: flags
    are seen by everybody on the machine."""
    where = "CHAPPE_TOKEN"
    if token_file is not None:
        where = "--token-file"
        try:
            token = token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token-file: {error}") from None
    if token is not None and not _TOKEN.fullmatch(token):
        raise ConfigError(f"{where}: this is not a token")
    return NodeApi(http, token, ca, proof)


def parse_data(text: str) -> Any:
    """A payload from the command line: JSON if it is JSON, else text; `-` reads standard input."""
    return json_or_text(sys.stdin.read() if text == "-" else text, "DATA")


def json_or_text(text: str, where: str) -> Any:
    """What a text stands for; raises ConfigError that says where it is."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text
    except RecursionError:
        raise ConfigError(f"{where}: nested too deeply") from None


def _refuse(constant: str) -> None:
    """NaN and the like: Python would read them, and JSON has none."""
    raise ValueError(constant)


def print_json(value: Any) -> None:
    """Print a value on one line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
