"""Who asks, which node, and how to print the answer: what every command about queues takes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from chappe.cli.api import NodeApi
from chappe.cli.options import HTTP, As, Ca, Http, Json, TokenFile, api, console, print_json
from chappe.cli.queue.remote import RemoteQueue

P = ParamSpec("P")


class Asker:
    """Reaches the node that the options name, and prints what it answers."""

    def __init__(
        self, as_: str, http: str, token_file: Path | None, ca: Path | None, *, as_json: bool
    ) -> None:
        self._http = http
        self._token_file = token_file
        self._ca = ca
        self.as_ = as_
        self.as_json = as_json

    def node(self) -> NodeApi:
        """The node; raises ConfigError for a wrong option."""
        return api(self._http, self._token_file, self._ca, os.environ.get("CHAPPE_TOKEN"))

    def queue(self, name: str) -> RemoteQueue:
        """A queue of the node; raises ConfigError for a wrong option."""
        return RemoteQueue(self.node(), name, self.as_)

    def tell(self, answer: dict[str, Any], told: str) -> None:
        """Print an answer for machines, or what it means for people."""
        if self.as_json:
            print_json(answer)
        else:
            # Not broken over lines: what it names may be a path that a program reads.
            console.print(told, highlight=False, soft_wrap=True)


def asking(run: Callable[Concatenate[Asker, P], None]) -> Callable[..., None]:
    """A command with the options of an asker after its own, so that all have the same ones."""

    def command(
        as_: As = "",
        http: Http = HTTP,
        token_file: TokenFile = None,
        ca: Ca = None,
        as_json: Json = False,
        **own: Any,
    ) -> None:
        run(Asker(as_, http, token_file, ca, as_json=as_json), **own)  # type: ignore[call-arg]

    # What typer reads the options from.
    _, *its_own = inspect.signature(run, eval_str=True).parameters.values()
    *askers, _ = inspect.signature(command, eval_str=True).parameters.values()
    command.__signature__ = inspect.Signature([*its_own, *askers])  # type: ignore[attr-defined]
    command.__doc__ = run.__doc__
    return command
