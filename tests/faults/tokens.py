"""Keys and tokens as an operator makes them: with the command line."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import jwt

from .process import COMMAND


class App:
    """An app with a key of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._file = folder / f"{name}.key"
        _run("token", "key", str(self._file))
        self.secret = self._file.read_text().strip()
        # Everything that must never be seen in a log.
        self.canaries = [self.secret]

    def config(self) -> str:
        """The key's part of a node's options."""
        return (
            f'[[access.keys]]\nid = "{self.name}-key"\nfile = "{self._file}"\napp = "{self.name}"\n'
        )

    def token(self, as_: str, **scopes: str) -> str:
        """A token from the command line, as `send="user:*"`, each scope one pattern."""
        patterns = [word for name, value in scopes.items() for word in (f"--{name}", value)]
        key = ("--key-file", str(self._file), "--key-id", f"{self.name}-key")
        return self._kept(_run("token", "create", *key, "--as", as_, "--app", self.name, *patterns))

    def forge(self, secret: str | None = None, **claims: Any) -> str:
        """A token with claims that the command line would not make."""
        all_claims = {
            "app": self.name,
            "aud": "chappe",
            "sub": "user:alice",
            "exp": int(time.time()) + 60,
            **claims,
        }
        header = {"kid": f"{self.name}-key"}
        return self._kept(jwt.encode(all_claims, secret or self.secret, "HS256", header))

    def _kept(self, token: str) -> str:
        # The signature is what makes it a secret.
        self.canaries += [token, token.rpartition(".")[2]]
        return token


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()
