"""The key that secrets of push are sealed with: of the cluster, or of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from chappe.errors import ConfigError
from chappe.push.seal import KEY_BYTES, derive_key

FILE = "push.key"


def seal_key(secret: bytes | None, folder: Path, file: str = "") -> bytes:
    """The key of a deployment; raises ConfigError.

    Processes that have a secret in common make it of that. Others have the folder in common where
    their states are, and the key lies beside them, made by whoever comes first. Where a file is
    named, the key is what is in it, and nothing else.
    """
    if file:
        try:
            return Path(file).read_bytes()
        except OSError as error:
            raise ConfigError(f"push.key: {error}") from None
    if secret is not None:
        return derive_key(secret)
    path = folder / FILE
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return _made(path)
    except OSError as error:
        raise ConfigError(f"push: {error}") from None


def _made(path: Path) -> bytes:
    """Write a key aside and link it into place: whoever is second finds the first one's."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, path)
        except FileExistsError:
            pass
        finally:
            aside.unlink()
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"push: {error}") from None
