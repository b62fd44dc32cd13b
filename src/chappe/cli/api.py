"""The node's HTTP API, as the commands use it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from chappe.errors import ChappeError, ConfigError, request_error

TIMEOUT_S = 15.0

# Makes headers of a request's method, path with its query, and body.
Proof = Callable[[str, str, bytes], Mapping[str, str]]


class NodeUnreachable(ChappeError):
    """No node answers at that address."""


class NodeApi:
    """Speaks HTTP to one node."""

    def __init__(
        self, url: str, token: str | None, ca: Path | None, proof: Proof | None = None
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"--http: {url} does not start with http:// or https://")
        self._url = url.rstrip("/")
        self._token = token
        self._proof = proof
        try:
            context = ssl.create_default_context(cafile=str(ca) if ca else None)
        except OSError as error:  # an SSLError is one, too
            raise ConfigError(f"--ca: {error}") from None
        # A node is addressed directly: a proxy of the environment is for the world outside.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """GET a JSON answer; raises RequestError as the node answers, or NodeUnreachable."""
        return self._read(self._open("GET", path, query, None, TIMEOUT_S))

    def post(
        self, path: str, body: dict[str, Any] | None, *, wait_s: float = 0.0, **query: Any
    ) -> dict[str, Any]:
        """POST JSON and read the answer, which may take `wait_s` by itself; raises as `get`."""
        return self._read(self._open("POST", path, query, _json(body), TIMEOUT_S + wait_s))

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """PUT JSON and read the answer; raises as `get`."""
        return self._read(self._open("PUT", path, {}, _json(body), TIMEOUT_S))

    def delete(self, path: str, **query: Any) -> dict[str, Any]:
        """DELETE and read the answer; raises as `get`."""
        return self._read(self._open("DELETE", path, query, None, TIMEOUT_S))

    def lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """GET lines, one after the other; raises as `get`, and when they break off."""
        with self._open("GET", path, query, None, TIMEOUT_S) as response:
            try:
                yield from response
            except (OSError, HTTPException) as error:
                raise NodeUnreachable(f"the node at {self._url} is gone ({error})") from None

    def post_lines(self, path: str, lines: bytes, **query: Any) -> dict[str, Any]:
        """POST lines; an answer that tells how far they were followed is given, not raised."""
        try:
            return self._read(self._send("POST", path, query, lines, TIMEOUT_S))
        except HTTPError as error:
            with error:
                answer = _body_of(error)
            if "done" in answer:
                return answer
            raise _refusal(error, answer) from None

    def events(self, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield each event of the node's stream; raises NodeUnreachable when it breaks off."""
        with self._open("GET", "/v1/events", query, None, None) as response:
            try:
                for line in response:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])
            except (OSError, HTTPException) as error:
                raise NodeUnreachable(f"the node at {self._url} is gone ({error})") from None
        raise NodeUnreachable(f"the node at {self._url} has ended the stream")

    def _open(
        self,
        method: str,
        path: str,
        query: dict[str, Any],
        data: bytes | None,
        timeout_s: float | None,
    ) -> HTTPResponse:
        try:
            return self._send(method, path, query, data, timeout_s)
        except HTTPError as error:
            with error:
                raise _refusal(error, _body_of(error)) from None

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, Any],
        data: bytes | None,
        timeout_s: float | None,
    ) -> HTTPResponse:
        given = {name: value for name, value in query.items() if value}
        url = self._url + path + (f"?{urlencode(given, doseq=True)}" if given else "")
        request = Request(url, data=data, method=method)  # noqa: S310, the scheme was checked
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        if self._proof is not None:
            for name, value in self._proof(method, request.selector, data or b"").items():
                request.add_header(name, value)
        try:
            response: HTTPResponse = self._opener.open(request, timeout=timeout_s)
        except HTTPError:
            raise
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise NodeUnreachable(
                f"no node answers at {self._url} ({reason}); is `chappe serve` running?"
            ) from None
        return response

    def _read(self, response: HTTPResponse) -> dict[str, Any]:
        try:
            with response:
                answer: dict[str, Any] = json.load(response)
        except ValueError:
            raise ChappeError(f"what answers at {self._url} is not a node") from None
        except (OSError, HTTPException) as error:
            raise NodeUnreachable(f"the node at {self._url} is gone ({error})") from None
        return answer


def _json(body: dict[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def _body_of(error: HTTPError) -> dict[str, Any]:
    try:
        body = json.loads(error.read())
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _refusal(error: HTTPError, body: dict[str, Any]) -> ChappeError:
    if "error" not in body or "reason" not in body:
        return ChappeError(f"the node answered {error.code} {error.reason}")
    unknown = body.get("outcome") == "unknown"
    return request_error(body["error"], body["reason"], outcome_unknown=unknown)
