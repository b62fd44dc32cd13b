"""Who asks, which node, and how to print the answer: what every command about push takes."""

from __future__ import annotations

import inspect
import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from chappe.cli.api import NodeApi, Proof
from chappe.cli.options import HTTP, Ca, Http, Json, TokenFile, api, console, print_json
from chappe.errors import ConfigError
from chappe.push.signing import sign

P = ParamSpec("P")
# Where in the environment it may be.
SECRET_VARIABLE = "CHAPPE_PUSH_SECRET"  # noqa: S105, its name
AppKey = Annotated[str, typer.Option("--app", help="The app's key.")]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        help=f"A file with the app's secret; or set {SECRET_VARIABLE}. Else as an administrator."
    ),
]
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SECRET = re.compile(r"[!-~]{1,256}")


class Asker:
    """Reaches the node that the options name, as an administrator."""

    def __init__(self, http: str, token_file: Path | None, ca: Path | None, *, as_json: bool):
        self.http = http
        self.ca = ca
        self._token_file = token_file
        self.as_json = as_json

    def node(self) -> NodeApi:
        """The node; raises ConfigError for a wrong option."""
        return self._node(None)

    def tell(self, answer: dict[str, Any], told: str) -> None:
        """Print an answer for machines, or what it means for people."""
        if self.as_json:
            print_json(answer)
        else:
            # Not broken over lines: what it names may be an id that a program reads.
            console.print(told, highlight=False, soft_wrap=True)

    def _node(self, proof: Proof | None, *, token: bool = True) -> NodeApi:
        if not token:
            return api(self.http, None, self.ca, None, proof)
        return api(self.http, self._token_file, self.ca, os.environ.get("CHAPPE_TOKEN"), proof)


class AppAsker(Asker):
    """The same as an app's server, which signs; or as an administrator who names the app."""

    def __init__(
        self,
        key: str,
        secret_file: Path | None,
        http: str,
        token_file: Path | None,
        ca: Path | None,
        *,
        as_json: bool,
    ) -> None:
        super().__init__(http, token_file, ca, as_json=as_json)
        if not _KEY.fullmatch(key):
            raise ConfigError("--app: an app's key is letters, digits, - and _, 64 at most")
        self.key = key
        self.secret_file = secret_file
        self.secret = read_secret(secret_file)

    def node(self) -> NodeApi:
        """The node; raises ConfigError for a wrong option."""
        if self.secret is None:
            return self._node(lambda *_: {"X-Chappe-App": self.key})
        return self._node(signing(self.key, self.secret), token=False)

    @property
    def vouches(self) -> bool:
        """Whether devices of the app get tokens on its word, whether or not it is open."""
        token = self._token_file is not None or "CHAPPE_TOKEN" in os.environ
        return self.secret is not None or token


def signing(key: str, secret: str) -> Proof:
    """Sign each request, now and once."""

    def prove(method: str, target: str, body: bytes) -> dict[str, str]:
        now_ms, nonce = time.time_ns() // 1_000_000, secrets.token_hex(16)
        return sign(key, secret, method, target, body, time_ms=now_ms, nonce=nonce)

    return prove


def read_secret(file: Path | None) -> str | None:
    """A secret of a file or of the environment, never of a flag: flags are seen by everybody on the
    machine. Raises ConfigError."""
    where, secret = SECRET_VARIABLE, os.environ.get(SECRET_VARIABLE)
    if file is not None:
        where = "--secret-file"
        try:
            secret = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where}: {error}") from None
    if secret is not None and not _SECRET.fullmatch(secret):
        raise ConfigError(f"{where}: this is not an app's secret")
    return secret


def administering(run: Callable[Concatenate[Asker, P], None]) -> Callable[..., None]:
    """A command with an administrator's options after its own."""

    def command(
        http: Http = HTTP,
        token_file: TokenFile = None,
        ca: Ca = None,
        as_json: Json = False,
        **own: Any,
    ) -> None:
        run(Asker(http, token_file, ca, as_json=as_json), **own)  # type: ignore[call-arg]

    return _joined(run, command)


def asking(run: Callable[Concatenate[AppAsker, P], None]) -> Callable[..., None]:
    """A command with an app server's options after its own."""

    def command(
        key: AppKey,
        secret_file: SecretFile = None,
        http: Http = HTTP,
        token_file: TokenFile = None,
        ca: Ca = None,
        as_json: Json = False,
        **own: Any,
    ) -> None:
        asker = AppAsker(key, secret_file, http, token_file, ca, as_json=as_json)
        run(asker, **own)  # type: ignore[call-arg]

    return _joined(run, command)


def _joined(run: Callable[..., None], command: Callable[..., None]) -> Callable[..., None]:
    """What typer reads options from: those of the one after those of the other."""
    _, *own = inspect.signature(run, eval_str=True).parameters.values()
    *askers, _ = inspect.signature(command, eval_str=True).parameters.values()
    # By keyword: an option that has to be given may follow one that need not.
    options = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *askers)]
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__doc__ = run.__doc__
    return command
