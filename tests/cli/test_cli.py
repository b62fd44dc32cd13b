"""The commands against a real node."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jwt
import pytest

from chappe.blocking import connect
from tests.cli.process import TIMEOUT_S, Served, run, run_here, serving, started

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node"), "--dev") as served:
        yield served


def one_line(text: str) -> str:
    """The single line of an error."""
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text.strip()


@contextmanager
def listening(node: Served, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run `chappe listen`, and wait until the node has it."""
    before = sessions(node)
    with started("listen", *arguments, "--http", node.http) as listener:
        deadline = time.monotonic() + TIMEOUT_S
        while sessions(node) <= before:
            assert time.monotonic() < deadline
            assert listener.poll() is None, listener.communicate(timeout=TIMEOUT_S)
            time.sleep(0.01)
        yield listener


def sessions(node: Served) -> int:
    url = f"{node.http}/v1/status?as=user:watch"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return int(json.load(answer)["sessions"].get("sse", 0))


def test_the_ready_line_names_every_edge(node: Served) -> None:
    assert set(node.addresses) >= {"websocket", "http", "tcp"}
    for address in (node.addresses["websocket"], node.addresses["tcp"]):
        with connect(address, as_="user:here") as client:
            assert client.presence("user:here")


def test_help_and_version_work_without_a_node() -> None:
    for arguments in (
        ("--help",),
        ("serve", "--help"),
        ("listen", "--help"),
        ("token", "create", "--help"),
    ):
        result = run_here(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        assert "Usage" in result.stdout
    # Once as it is installed, by its entry point.
    assert run("--version").stdout.startswith("chappe 0.")


def test_send_reaches_a_user_and_says_the_id(node: Served) -> None:
    with connect(node.addresses["tcp"], as_="user:bob") as bob:
        result = node.run("send", "--as", "user:alice", "--to", "user:bob", '{"n": 1}')
        assert (result.returncode, result.stderr) == (0, "")
        message = bob.receive()
        assert result.stdout == f"ok message {message.id}\n"
        assert (message.sender, message.data) == ("user:alice", {"n": 1})
        result = node.run("send", "--as", "user:alice", "--to", "user:bob", "--json", "plain text")
        answer = json.loads(result.stdout)
        message = bob.receive()
        assert answer == {"ok": True, "message": str(message.id)}
        assert message.data == "plain text"
        node.run("send", "--as", "user:alice", "--to", "user:bob", "-", stdin="[1, 2]")
        assert bob.receive().data == [1, 2]


def test_send_to_several_says_which_did_not_get_it(node: Served) -> None:
    with connect(node.addresses["tcp"], as_="user:bob") as bob:
        result = node.run_here(
            "send", "--as", "user:a", "--to", "user:bob", "--to", "user:nobody", "1"
        )
        assert result.returncode == 1
        assert "unreachable" in one_line(result.stderr)
        assert bob.receive().data == 1


def test_publish_says_whether_anybody_listens(node: Served) -> None:
    result = node.run_here("publish", "--as", "user:a", "topic:quiet", "1")
    assert result.returncode == 0
    assert "no subscriber" in result.stdout
    with connect(node.addresses["tcp"], as_="user:bob") as bob:
        bob.subscribe("topic:loud")
        result = node.run_here("publish", "--as", "user:a", "topic:loud", "1", "--json")
        assert json.loads(result.stdout)["nodes"] == 1
        assert bob.receive().data == 1


def test_listen_prints_what_comes_and_ends_after_so_many(node: Served) -> None:
    arguments = ("topic:news", "--as", "user:ear", "-n", "2", "--json")
    with listening(node, *arguments) as listener:
        node.run_here("publish", "--as", "user:a", "topic:news", '{"a": 1}')
        node.run_here("send", "--as", "user:a", "--to", "user:ear", "hello")
        output, errors = listener.communicate(timeout=TIMEOUT_S)
    assert (listener.returncode, errors) == (0, "")
    first, second = map(json.loads, output.splitlines())
    assert (first["op"], first["to"], first["data"]) == ("message", "topic:news", {"a": 1})
    assert (second["to"], second["from"], second["data"]) == ("user:ear", "user:a", "hello")


def test_rooms_are_listened_to_and_published_to(node: Served) -> None:
    arguments = ("room:42", "topic:mixed", "--as", "user:ear", "-n", "3", "--json")
    with listening(node, *arguments) as listener:
        with connect(node.addresses["tcp"], as_="user:bob") as bob:
            while not bob.members("room:42").members:
                time.sleep(0.01)
        result = node.run_here("publish", "--as", "user:a", "room:42", "1")
        assert (result.returncode, result.stderr) == (0, "")
        assert re.fullmatch(r"ok message \d+\n", result.stdout)
        result = node.run_here("publish", "--as", "user:a", "room:42", "2", "--reliable", "--json")
        assert json.loads(result.stdout).keys() == {"ok", "message"}
        node.run_here("publish", "--as", "user:a", "topic:mixed", "3")
        output, errors = listener.communicate(timeout=TIMEOUT_S)
    assert (listener.returncode, errors) == (0, "")
    heard = [json.loads(line) for line in output.splitlines()]
    assert {(event["to"], event["data"]) for event in heard} == {
        ("room:42", 1),
        ("room:42", 2),
        ("topic:mixed", 3),
    }


def test_what_is_reliable_is_for_rooms(node: Served) -> None:
    result = node.run_here("publish", "--as", "user:a", "topic:t", "1", "--reliable")
    assert result.returncode == 1
    assert "reliable: not for a topic" in one_line(result.stderr)


def test_listen_shows_a_strangers_text_as_text(node: Served) -> None:
    with listening(node, "--as", "user:ear", "-n", "2") as listener:
        node.run_here("send", "--as", "user:a", "--to", "user:ear", '"\\u001b[31m[bold]red\\u0007"')
        with connect(node.addresses["tcp"], as_="user:b") as b:
            b.send("user:ear", b"\x00\x01\x02")
        output, _ = listener.communicate(timeout=TIMEOUT_S)
    assert "\x1b" not in output
    assert "\x07" not in output
    assert "[bold]red" in output
    assert "3 bytes" in output


def test_listen_goes_on_when_its_node_is_replaced(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text("drain_s = 1.0\n")
    with serving(tmp_path, "--dev", "--config", str(config)) as node:
        arguments = ("topic:news", "--as", "user:ear", "-n", "2", "--json")
        with listening(node, *arguments) as listener:
            node.run_here("send", "--as", "user:a", "--to", "user:ear", "before")
            assert node.terminate()[0] == 0
            port = node.http.rpartition(":")[2]
            with serving(tmp_path, "--dev", "--http-port", port) as another:
                while sessions(another) == 0:
                    assert listener.poll() is None, listener.communicate(timeout=TIMEOUT_S)
                    time.sleep(0.01)
                another.run("publish", "--as", "user:a", "topic:news", '"after"')
                output, errors = listener.communicate(timeout=TIMEOUT_S)
    assert (listener.returncode, errors) == (0, "")
    events = [json.loads(line) for line in output.splitlines()]
    assert "reconnect" in [event["op"] for event in events]
    came = [event["data"] for event in events if event["op"] == "message"]
    assert came == ["before", "after"]


def test_listen_ends_with_one_line_when_its_node_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--dev") as node, listening(node, "--as", "user:ear") as listener:
        node.process.kill()
        _, errors = listener.communicate(timeout=TIMEOUT_S)
        assert listener.returncode == 1
        one_line(errors)


def test_status_shows_sessions_and_counters(node: Served) -> None:
    with connect(node.addresses["websocket"], as_="user:ws"):
        result = node.run_here("status", "--as", "user:a", "--json")
        status = json.loads(result.stdout)
        assert status["sessions"]["websocket"] == 1
        assert status["addresses"] == node.addresses
        shown = node.run_here("status", "--as", "user:a")
        assert shown.returncode == 0
        assert "serving" in shown.stdout
        assert node.addresses["websocket"] in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [("send", "--to", "user:b", "1"), ("publish", "topic:t", "1"), ("listen",), ("status",)],
    ids=lambda arguments: arguments[0],
)
def test_without_a_node_the_commands_say_so_plainly(arguments: tuple[str, ...]) -> None:
    result = run_here(*arguments, "--as", "user:a", "--http", NOBODY)
    assert (result.returncode, result.stdout) == (1, "")
    assert "no node answers at http://127.0.0.1:9" in one_line(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("send", "--as", "user:a", "--to", "user:nobody", "1"), 1, "unreachable"),
        (("send", "--as", "user:a", "--to", "nonsense", "1"), 1, "protocol"),
        (("publish", "--as", "user:a", "user:b", "1"), 1, "protocol"),
        (("listen", "topic:*", "--as", "user:a"), 1, "protocol"),
        (("listen", "--as", "topic:t"), 1, "protocol"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_an_error_of_the_node_is_one_line(
    node: Served, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = node.run_here(*arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert said in one_line(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--config", "/nonexistent.toml"), "--config"),
        (("serve",), "access.keys"),
        (("serve", "--dev", "--host", "0.0.0.0"), "host"),
        (("serve", "--dev", "--data", "/dev/null"), "data"),
        (("status", "--http", "ftp://127.0.0.1"), "--http"),
        (("status", "--token-file", "/nonexistent"), "--token-file"),
        (("status", "--ca", "/nonexistent"), "--ca"),
        (("token", "create", "--as", "user:a", "--key-file", "/nonexistent"), "--key-file"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_option_is_one_line_that_names_it(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if line.startswith("chappe: ")]
    assert len(lines) == 1
    assert said in lines[0]
    assert "Traceback" not in result.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run("serve", "--dev", "--port", port, "--data", str(tmp_path))
    assert result.returncode == 2
    assert port in result.stderr
    assert "Traceback" not in result.stderr
    assert "ready" not in result.stdout


def test_an_address_where_something_else_answers_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")

        other.settimeout(TIMEOUT_S)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        result = run("status", "--http", f"http://127.0.0.1:{other.getsockname()[1]}")
        thread.join(TIMEOUT_S)
    assert result.returncode == 1
    one_line(result.stderr)


def test_dev_says_so_loudly_and_sigterm_drains(tmp_path: Path) -> None:
    with serving(tmp_path, "--dev") as node:
        client = connect(node.addresses["tcp"], as_="user:a")
        client.close()
        code, errors = node.terminate()
    assert code == 0
    assert "DEVELOPMENT MODE" in errors
    assert "drain.end" in errors
    assert "Traceback" not in errors


def test_keys_and_tokens_let_in_whom_they_name(tmp_path: Path) -> None:
    key = tmp_path / "key"
    assert run_here("token", "key", str(key)).returncode == 0
    assert key.stat().st_mode & 0o077 == 0
    again = run_here("token", "key", str(key))
    assert again.returncode == 2
    assert "FILE" in one_line(again.stderr)

    made = run_here(
        *("token", "create", "--key-file", str(key), "--as", "user:alice"),
        *("--send", "user:*", "--publish", "topic:a.*", "--hours", "2"),
    )
    token = made.stdout.strip()
    claims = jwt.decode(token, key.read_bytes().strip(), ["HS256"], audience="chappe")
    assert (claims["sub"], claims["send"]) == ("user:alice", ["user:*"])
    assert claims["exp"] - claims["iat"] == 7200

    config = tmp_path / "chappe.toml"
    config.write_text(f'[[access.keys]]\nid = "main"\nfile = "{key}"\n')
    (tmp_path / "token").write_text(token)
    with serving(tmp_path / "data", "--config", str(config)) as node:
        with_file = ("--token-file", str(tmp_path / "token"))
        assert node.run_here("publish", "topic:a.b", "1", *with_file).returncode == 0
        assert node.run_here("publish", "topic:a.b", "1", CHAPPE_TOKEN=token).returncode == 0
        refused = node.run_here("publish", "topic:b", "1", *with_file)
        assert refused.returncode == 1
        assert "forbidden" in one_line(refused.stderr)
        for unknown in (node.run_here("publish", "topic:a.b", "1"), node.run_here("status")):
            assert unknown.returncode == 1
            assert "token" in one_line(unknown.stderr)
        forged = node.run_here("publish", "topic:a.b", "1", CHAPPE_TOKEN=token[:-4] + "AAAA")
        assert forged.returncode == 1
        assert token[-20:-4] not in one_line(forged.stderr)
        code, errors = node.terminate()
        assert code == 0
        assert "DEVELOPMENT" not in errors
        assert token not in errors
