"""The server of an app that has a hook, and what it was told."""

from __future__ import annotations

import hashlib
import hmac
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

SECRET = b"a secret of more than thirty-two bytes, for hooks"
WAIT_S = 30.0
_CONFIG = """
[hooks.default]
url = "http://127.0.0.1:{port}/hook"
secret_file = "{secret}"
"""


class AppServer:
    """Takes signed notices and keeps them in order."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        notices: Queue[dict[str, Any]] = Queue()
        self._notices = notices
        # A notice comes at least once; its id tells those that came before.
        known: set[str] = set()
        secret = folder / "secret"
        secret.write_bytes(SECRET)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                time, _, digest = self.headers["chappe-signature"].partition(",v1=")
                signed = time.removeprefix("t=").encode() + b"." + body
                assert hmac.new(SECRET, signed, hashlib.sha256).hexdigest() == digest
                self.send_response(204)
                self.end_headers()
                notice = json.loads(body)
                if notice["id"] not in known:
                    known.add(notice["id"])
                    notices.put(notice)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A daemon: a fixture that failed half way must not keep the process from ending.
        self._thread = Thread(target=self._server.serve_forever, name="app server", daemon=True)
        self._thread.start()
        # The hook's part of a node's options.
        self.config = _CONFIG.format(port=self._server.server_address[1], secret=secret)

    def next(self) -> tuple[str, str]:
        """The next notice: what happened to whom."""
        notice = self._notices.get(timeout=WAIT_S)
        return notice["event"], notice["address"]

    def told(self) -> list[tuple[str, str]]:
        """All notices that came by now and were not taken."""
        found = []
        while not self._notices.empty():
            notice = self._notices.get_nowait()
            found.append((notice["event"], notice["address"]))
        return found

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._thread.join(WAIT_S)
        self._server.server_close()
        assert not self._thread.is_alive(), "the app's server does not end"
