"""The documentation tells the truth: its examples run, its tables are complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from chappe.access.token import Key
from chappe.cli.main import app as cli
from chappe.cluster.options import ClusterOptions, ClusterTls, LinkOptions, Traffic
from chappe.edge.http.options import HttpOptions
from chappe.endpoints.options import HookOptions
from chappe.endpoints.presence import PresenceOptions
from chappe.errors import CloseCode, ErrorCode
from chappe.hub.options import HubOptions
from chappe.keys.options import KeysOptions
from chappe.log.options import JournalOptions
from chappe.node.handlers import Handlers
from chappe.node.options import (
    Access,
    EventsOptions,
    NodeOptions,
    ParquetOptions,
    PushOptions,
    Tls,
    load_options,
)
from chappe.push.admin.options import DeskOptions
from chappe.push.options import CometOptions
from chappe.push.webpush.options import WebPushOptions
from chappe.queues.options import QueueLimits, ReplicationOptions
from chappe.registry.options import RegistryOptions
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.wire.limits import Limits
from chappe.wire.ops import CODES
from tests.processes import kill, read_line

ROOT = Path(__file__).parents[1]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
PAGES = ["README.md", "docs/tutorial.md", "docs/how-to.md"]
CHAPPE = Path(sys.executable).with_name("chappe")
DEFAULTS = {
    "websocket": "ws://127.0.0.1:7400/ws",
    "http": "http://127.0.0.1:7401",
    "tcp": "tcp://127.0.0.1:7402",
}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


# Applications are for servers: tests/node/test_web_apps.py runs them.
APPLICATIONS = [
    block
    for page in ("README.md", "docs/keys.md")
    for block in blocks(page, "python")
    if "hub.asgi" in block
]
PYTHON_BLOCKS = [
    (page, block) for page in PAGES for block in blocks(page, "python") if block not in APPLICATIONS
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    data = tmp_path_factory.mktemp("node")
    ports = ("--port", "0", "--http-port", "0", "--tcp-port", "0", "--comet-port", "0")
    with (data / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [CHAPPE, "serve", "--dev", *ports, "--data", data],
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        assert process.stdout is not None
        word, _, addresses = read_line(process.stdout).partition(" ")
        assert word == "ready", (data / "stderr").read_text()
        yield json.loads(addresses)
        process.terminate()
        assert process.wait(30) == 0, (data / "stderr").read_text()
    finally:
        kill(process)


def here(text: str, node: dict[str, str]) -> str:
    """An example, aimed at the node of this test."""
    for edge, address in DEFAULTS.items():
        text = text.replace(address, node[edge])
    return text


@pytest.mark.parametrize(("page", "block"), PYTHON_BLOCKS, ids=[page for page, _ in PYTHON_BLOCKS])
def test_a_python_example_runs(page: str, block: str, node: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", here(block, node)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        "ARCHITECTURE.md",
        "docs/events.md",
        "docs/explanation.md",
        "docs/keys.md",
        "docs/pipeline.md",
        "docs/push.md",
        "docs/push-webpush.md",
        "docs/queues.md",
        "docs/rooms.md",
    ],
)
def test_every_link_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    for link in links:
        assert (ROOT / page).parent.joinpath(link).exists(), link


def test_the_pages_hold_examples() -> None:
    assert len(PYTHON_BLOCKS) >= 3


def curls(*, polling: bool) -> list[tuple[str, str, str | None]]:
    """The requests of the how-to, in order: method, address and body."""
    lines = [line for block in blocks("docs/how-to.md", "sh") for line in block.splitlines()]
    found = []
    for line in lines:
        if line.startswith("curl") and ("/v1/poll" in line) is polling:
            method, url = re.findall(r"^curl -s (?:-X (\w+) )?'?([^' ]+)'?", line)[0]
            body = re.findall(r"-d '(.*?)'", line)
            found.append((method or ("POST" if body else "GET"), url, body[0] if body else None))
    return found


def answers(node: dict[str, str], requests: list[tuple[str, str, str | None]]) -> list[Any]:
    """Make each request; what an answer says of ids stands in the following ones."""
    said: list[Any] = []
    session = message = ""
    for method, url, text in requests:
        body = (text or "").replace("ID", session).replace("MESSAGE", message)
        body = body.replace("20000", "0")
        command = [sys.executable, "-c", _ASK, method, here(url, node).replace("ID", session), body]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
        said.append(json.loads(done.stdout))
        session = said[-1].get("session", session)
        message = next((m["message"] for m in said[-1].get("messages", ())), message)
    return said


_ASK = """
import sys, urllib.request
method, url, body = sys.argv[1:]
request = urllib.request.Request(url, body.encode() or None, method=method)
print(urllib.request.urlopen(request).read().decode())
"""


def test_the_polling_how_to_works_as_written(node: dict[str, str]) -> None:
    requests = curls(polling=True)
    assert len(requests) == 4
    said = answers(node, requests)
    assert all(answer["ok"] for answer in said)
    assert said[2]["messages"] == []


def test_the_other_requests_of_the_how_to_work_as_written(node: dict[str, str]) -> None:
    requests = curls(polling=False)
    assert len(requests) >= 10
    assert all(answer["ok"] for answer in answers(node, requests))


def config_files() -> list[str]:
    (manifest,) = blocks("docs/how-to.md", "yaml")
    (mounted,) = re.findall(r"chappe.toml: \|\n((?:    .*\n|\n)+)", manifest)
    written = [*blocks("docs/how-to.md", "toml"), *blocks("docs/rooms.md", "toml")]
    return [*written, textwrap.dedent(mounted)]


@pytest.mark.parametrize("text", config_files())
def test_a_config_file_of_the_pages_is_understood(text: str, tmp_path: Path) -> None:
    file = tmp_path / "chappe.toml"
    file.write_text(text)
    place = {"CHAPPE_CLUSTER_ADVERTISE": "10.0.0.7"} if "kubernetes:" in text else {}
    values = tomllib.loads(text)
    keys = [{"id": "k", "file": "f"}]
    flags = {} if "keys" in values.get("access", {}) else {"access.keys": keys}
    options = load_options(file, place, flags)
    assert options.access.keys


def test_every_op_is_in_the_reference_with_its_code_and_fields() -> None:
    for op, code in CODES.items():
        fields = ", ".join(f"`{f.encode_name}`" for f in msgspec.structs.fields(op))
        assert f"| {code} | `{op.__struct_config__.tag}` | {fields} |" in REFERENCE


@pytest.mark.parametrize("code", CloseCode)
def test_every_close_code_is_in_the_reference_with_what_the_sdk_does(code: CloseCode) -> None:
    (row,) = re.findall(rf"^\| {code.value} \|.*$", REFERENCE, re.MULTILINE)
    assert ("reconnects" in row) is code.reconnect


@pytest.mark.parametrize("code", ErrorCode)
def test_every_error_is_in_the_reference(code: ErrorCode) -> None:
    assert f"| `{code.value}` |" in REFERENCE


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "access": Access,
    "hub": HubOptions,
    "http": HttpOptions,
    "limits": Limits,
    "leases": RegistryOptions,
    "cluster": ClusterOptions,
    "cluster.link": LinkOptions,
    "cluster.tls": ClusterTls,
    "traffic": Traffic,
    "presence": PresenceOptions,
    "rooms": RoomsOptions,
    "rooms.probe": ProbeOptions,
    "push": PushOptions,
    "push.comet": CometOptions,
    "push.desk": DeskOptions,
    "push.webpush": WebPushOptions,
    "journal": JournalOptions,
    "queue_limits": QueueLimits,
    "replication": ReplicationOptions,
    "parquet": ParquetOptions,
    "events": EventsOptions,
    "tls": Tls,
}


def options(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, object]]:
    for field in msgspec.structs.fields(kind):
        name = prefix + field.encode_name
        if name in SECTIONS:
            yield from options(SECTIONS[name], f"{name}.")
        else:
            yield name, field.default


def test_every_option_is_in_the_reference_with_its_default() -> None:
    for name, default in options(NodeOptions):
        (row,) = re.findall(rf"^\| `{re.escape(name)}` \|.*$", REFERENCE, re.MULTILINE)
        if isinstance(default, bool):
            assert f"| {str(default).lower()} |" in row
        elif isinstance(default, int | float | str):
            assert f"| {default} |" in row
    for field in Key.__struct_fields__:
        assert f"`{field}`" in REFERENCE
    for hook in msgspec.structs.fields(HookOptions):
        (row,) = re.findall(rf"^\| `hooks.APP.{hook.name}` \|.*$", REFERENCE, re.MULTILINE)
        if isinstance(hook.default, int | float) and not isinstance(hook.default, bool):
            assert f"| {hook.default} |" in row


def test_every_option_of_keys_is_on_their_page_with_its_default() -> None:
    page = (ROOT / "docs" / "keys.md").read_text()
    for field in msgspec.structs.fields(KeysOptions):
        assert f"| `{field.name}` | {field.default} |" in page


def test_every_handler_and_call_of_a_hub_is_on_the_page_of_keys() -> None:
    page = (ROOT / "docs" / "keys.md").read_text()
    calls = {name for name in vars(Handlers) if not name.startswith("_")}
    calls |= {"send", "subscribe", "unsubscribe", "close", "counts", "asgi", "lifespan", "listen"}
    for name in calls:
        assert f"hub.{name}" in page, name


def test_every_route_is_in_the_reference(node: dict[str, str]) -> None:
    (described,) = answers(node, [("GET", DEFAULTS["http"] + "/openapi.json", None)])
    assert described["paths"]
    for path, methods in described["paths"].items():
        (row,) = re.findall(
            rf"^\| `[A-Z]+ {re.escape(path)}(?:\?[^`]*)?` \|.*$", REFERENCE, re.MULTILINE
        )
        for method in methods:
            assert f"{method.upper()} {path}" in row or f"`{method.upper()}`" in row


def test_every_flag_of_serve_and_cluster_is_in_the_reference() -> None:
    commands = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    assert set(commands) >= {"serve", "cluster"}
    for name, command in commands.items():
        (row, *_) = re.findall(rf"^\| `chappe {name}\b.*$", REFERENCE, re.MULTILINE)
        for parameter in command.params if name in ("serve", "cluster") else ():
            flag = parameter.opts[0]
            assert f"`{flag}" in row or f"`{flag}" in REFERENCE.partition(row)[2], flag


def test_every_flag_of_the_pipeline_is_in_the_reference() -> None:
    commands = typer.main.get_command(cli).commands  # type: ignore[attr-defined]
    mine = {f"pipeline {name}": one for name, one in commands["pipeline"].commands.items()}
    assert set(mine) == {"pipeline run", "pipeline compact", "pipeline expire"}
    mine |= {name: commands[name] for name in ("trace", "report")}
    for name, command in mine.items():
        (row,) = re.findall(rf"^\| `chappe {name}\b.*$", REFERENCE, re.MULTILINE)
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert re.search(rf"{parameter.opts[0]}\b", row), (name, parameter.opts[0])


def test_every_metric_is_in_the_reference(node: dict[str, str]) -> None:
    fetch = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
    command = [sys.executable, "-c", fetch, node["http"] + "/metrics"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    metrics = re.findall(r"^# HELP (chappe_\w+)", done.stdout, re.MULTILINE)
    assert metrics
    for metric in metrics:
        assert f"| `{metric}` |" in REFERENCE
