"""Ports that several processes share, picked once and kept while any of them lives."""

from __future__ import annotations

import socket

from chappe.errors import ConfigError


class Reservation:
    """A port that is bound, but not listened on: those who share it may die and come back.

    Raises ConfigError when the port is somebody else's.
    """

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((host, port))
            # In this order: a port that others share among themselves is refused above, one whose
            # last connections are still ending is not, and from here on only our own may join.
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except (OSError, OverflowError) as error:
            self.socket.close()
            raise ConfigError(f"cannot listen on {host}:{port}: {error}") from None
        self.port: int = self.socket.getsockname()[1]

    def close(self) -> None:
        """Let go of it."""
        self.socket.close()
