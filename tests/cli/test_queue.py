"""`chappe queue` against a real node."""

from __future__ import annotations

import json
import re
import shlex
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.process import TIMEOUT_S, Served, run, serving, started

_names = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("node"), "--dev") as served:
        yield served


@pytest.fixture
def queue(node: Served) -> str:
    """A queue of its own for each test."""
    name = f"jobs{next(_names)}"
    done(node, "create", name, "--volatile", "--attempts-max", "1")
    return name


def done(node: Served, *arguments: str, **more: Any) -> str:
    """What a command that works prints."""
    result = node.run_here("queue", *arguments, **more)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


def told(node: Served, *arguments: str, **more: Any) -> Any:
    """What a command says to a machine."""
    return json.loads(done(node, *arguments, "--json", **more))


def failed(node: Served, *arguments: str, code: int = 1, **more: Any) -> str:
    """The one line that a command fails with."""
    result = node.run_here("queue", *arguments, **more)
    assert result.returncode == code, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.strip()


def consumed(node: Served, name: str, *more: str) -> list[Any]:
    lines = done(node, "consume", name, "-n", "0", "--json", *more).splitlines()
    return [json.loads(line)["data"] for line in lines]


def test_create_says_the_lanes_and_list_shows_the_queue(node: Served) -> None:  # Q3, Q9
    made = done(node, "create", "lanes", "--volatile", "--lanes", "3")
    assert re.fullmatch(r"ok queue:lanes, lanes \d+, \d+, \d+\n", made)
    done(node, "send", "lanes", "1", "2")
    done(node, "register", "lanes", "al", "--group", "g")
    (row,) = [line for line in done(node, "list").splitlines() if " lanes " in line][1:]
    assert row.split()[:5] == ["lanes", "2", "0", "0", "3"]
    assert "g: 2" in row
    (listed,) = told(node, "list", "--prefix", "lanes")["queues"]
    assert (listed["depth"], listed["dead"], len(listed["lanes"])) == (2, 0, 3)
    view = done(node, "show", "queue:lanes")
    assert "2 waiting" in view
    assert re.search(r"g +2 +0 +0 +al", view)


def test_send_prints_the_number_and_ack(node: Served, queue: str) -> None:  # Q5, Q13
    assert done(node, "send", queue, "a", '{"b": 1}', "--num", "7") == "7 ACK\n8 ACK\n"
    sent = done(node, "send", queue, "c")
    assert re.fullmatch(r"\d+ ACK\n", sent)
    said = ("--key", "k", "--header", "h=a=b", "--tag", "t", "--tag", "u", "--type", "0")
    answer = told(node, "send", queue, "d", "--num", "9", *said)
    assert answer["num"] == 9
    page = told(node, "browse", queue)
    assert [message["data"] for message in page["messages"]] == ["a", {"b": 1}, "c", "d"]
    last = page["messages"][-1]
    assert last["message"] == answer["message"]
    assert (last["key"], last["headers"], last["tags"], last["type"]) == (
        "k",
        {"h": "a=b"},
        ["t", "u"],
        0,
    )
    assert consumed(node, queue) == ["a", {"b": 1}, "c", "d"]


def test_lines_of_a_file_are_messages(node: Served, queue: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text('{"n": 1}\n\ntext\n3\n')
    assert done(node, "send", queue, "--file", str(tmp_path / "lines")).count("ACK") == 3
    assert done(node, "send", queue, "--file", "-", stdin="4\n5").count("ACK") == 2
    assert consumed(node, queue) == [{"n": 1}, "text", 3, 4, 5]


@pytest.mark.parametrize("how", [(), ("--no-ack",)])
def test_consume_as_somebody_else(node: Served, queue: str, how: tuple[str, ...]) -> None:
    done(node, "send", queue, "1")
    assert "1" in done(node, "consume", queue, "--as", "user:b", *how)
    figures = told(node, "show", queue)
    assert (figures["depth"], figures["dead"]) == (0, len(how))


def test_consume_takes_so_many_waits_and_hands_back(node: Served, queue: str) -> None:  # Q7
    done(node, "send", queue, "1", "2", "3")
    first = done(node, "consume", queue, "-n", "2")
    assert [line.split()[-1] for line in first.splitlines()] == ["1", "2"]
    assert told(node, "show", queue)["depth"] == 1
    done(node, "consume", queue)
    assert consumed(node, queue) == []
    arguments = ("queue", "consume", queue, "--wait", "20", "--json", "--http", node.http)
    with started(*arguments) as waiting:
        done(node, "send", queue, '"late"')
        output, errors = waiting.communicate(timeout=TIMEOUT_S)
    assert (waiting.returncode, errors, json.loads(output)["data"]) == (0, "", "late")
    # A name is free again as soon as its consumer has left.
    done(node, "send", queue, "4", "5")
    for number in ("4", "5"):
        taken = done(node, "consume", queue, "--name", "al", "--wait", "20")
        assert taken.split()[-1] == number


def test_each_group_gets_each_message_it_wants(node: Served, queue: str) -> None:  # Q8
    done(node, "register", queue, "al", "--tag", "red")
    done(node, "register", queue, "eu", "--header", "to=eu")
    done(node, "register", queue, "al", "--group", "every")
    done(node, "send", queue, "r", "--tag", "red")
    done(node, "send", queue, "b", "--tag", "blue", "--header", "to=eu")
    assert consumed(node, queue, "--group", "al") == ["r"]
    assert consumed(node, queue, "--group", "eu") == ["b"]
    assert consumed(node, queue, "--group", "every") == ["r", "b"]
    done(node, "unregister", queue, "--group", "every")
    groups = {group["group"] for group in told(node, "show", queue)["groups"]}
    assert groups == {"al", "eu"}
    assert "bob" in failed(node, "unregister", queue, "bob", "--group", "eu")


def test_a_delayed_message_is_browsed_and_cancelled(node: Served, queue: str) -> None:  # Q2
    answer = told(node, "send", queue, "later", "--delay-ms", "600000")
    assert "due=" in done(node, "browse", queue, "--delayed")
    assert consumed(node, queue) == []
    done(node, "cancel", queue, answer["message"])
    assert done(node, "browse", queue, "--delayed") == ""
    assert answer["message"] in failed(node, "cancel", queue, answer["message"])


def test_browse_goes_through_all_lanes_and_both_ways(node: Served) -> None:  # Q9
    lane, _ = told(node, "create", "browsed", "--volatile", "--lanes", "2")["lanes"]
    at = ("--lane", str(lane))
    done(node, "send", "browsed", "1", "2", "3", "4")
    lines = done(node, "browse", "browsed", "-n", "10").splitlines()
    assert sorted(line.split()[-1] for line in lines) == ["1", "2", "3", "4"]
    newest = done(node, "browse", "browsed", *at, "--reverse", "-n", "1").splitlines()
    oldest = done(node, "browse", "browsed", *at, "-n", "1").splitlines()
    assert int(newest[0].split()[-1]) > int(oldest[0].split()[-1])
    after = oldest[1].split()[-1]
    following = done(node, "browse", "browsed", *at, "--after", after)
    assert following.splitlines()[0].split()[-1] == newest[0].split()[-1]


def test_dead_letters_are_listed_shown_replayed_and_purged(
    node: Served, queue: str
) -> None:  # Q6, Q9
    done(node, "send", queue, "1", "2", "3")
    done(node, "consume", queue, "-n", "3", "--no-ack")
    listed = done(node, "dead", "list", queue).splitlines()
    assert len(listed) == 3
    assert "1 attempts" in listed[0]
    page = told(node, "dead", "list", queue, "-n", "1")
    (letter,) = page["messages"]
    shown = json.loads(done(node, "dead", "show", queue, letter["message"]))
    assert (shown["data"], shown["death"]["attempts"]) == (1, 1)
    assert "5 is not among" in failed(node, "dead", "show", queue, "5")
    assert "--all" in failed(node, "dead", "replay", queue, code=2)
    assert "1 dead letter sent" in done(node, "dead", "replay", queue, letter["message"])
    assert consumed(node, queue) == [1]
    assert told(node, "dead", "replay", queue, "--all") == {"ok": True, "n": 2}
    done(node, "consume", queue, "-n", "2", "--no-ack", "--wait", "10")
    assert "--yes" in failed(node, "dead", "purge", queue, "--all", code=2)
    assert told(node, "dead", "purge", queue, "--all", "--yes") == {"ok": True, "n": 2}
    assert told(node, "show", queue)["dead"] == 0


@pytest.mark.parametrize("form", ["document", "lines"])
def test_an_export_is_json_that_a_person_reads_and_an_import_takes(
    node: Served, queue: str, tmp_path: Path, form: str
) -> None:  # Q12
    done(node, "register", queue, "al", "--group", "g")
    done(node, "send", queue, "dies")
    done(node, "consume", queue, "--group", "g", "--no-ack")
    done(node, "send", queue, "ä", '{"n": 1}', "--key", "k")
    done(node, "send", queue, "later", "--delay-ms", "600000")
    file = tmp_path / "export"
    lines = ("--lines",) if form == "lines" else ()
    assert done(node, "export", queue, "--out", str(file), *lines) == f"wrote {file}\n"
    assert not list(tmp_path.glob("*.part"))
    if form == "document":
        document = json.loads(file.read_text())
        assert document["queue"]["queue"] == f"queue:{queue}"
        assert [group["consumers"] for group in document["groups"]] == [["al"]]
        assert [message["data"] for message in document["messages"]] == ["ä", {"n": 1}]
        assert [letter["data"] for letter in document["dead"]] == ["dies"]
        assert json.loads(done(node, "export", queue))["messages"] == document["messages"]
        # To a machine the export itself is the answer, or what was written where.
        assert told(node, "export", queue)["messages"] == document["messages"]
        exported = {"groups": 1, "messages": 2, "delayed": 1, "dead": 1}
        answer = told(node, "export", queue, "--out", str(file))
        assert answer == {"ok": True, "queue": f"queue:{queue}", "out": str(file), **exported}
        # However it is laid out, it is the same document.
        file.write_text(json.dumps(document, indent=2))
    copy = f"copy-{form}"
    answer = told(node, "import", str(file), "--to", copy)
    counts = {"groups": 1, "messages": 2, "delayed": 1, "dead": 0, "skipped": 1}
    assert answer == {"ok": True, "queue": f"queue:{copy}", **counts}
    assert told(node, "show", copy)["delayed"] == 1
    assert consumed(node, copy, "--group", "g") == ["ä", {"n": 1}]
    assert told(node, "import", "-", "--to", copy, "--dead", stdin=file.read_text())["dead"] == 1


def test_a_wrong_import_names_the_line_and_goes_on_from_there(
    node: Served, tmp_path: Path
) -> None:  # Q12
    lines: list[Any] = [{"queue": {"queue": "queue:mended", "options": {"volatile": True}}}]
    lines += [{"message": {"data": number}} for number in range(3)]
    lines[2] = {"message": {"kee": 1}}
    file = tmp_path / "lines"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "breaks off" in failed(node, "import", str(file), code=2)
    error = failed(node, "import", str(file), "--partial")
    assert "line 3: " in error
    assert "kee" in error
    assert "1 messages went in" in error
    resume = error.split()[-1]
    lines[2] = {"message": {"data": 1}}
    lines.append({"end": {"messages": 3}})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert told(node, "import", str(file), "--resume", resume)["messages"] == 2
    assert consumed(node, "mended") == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "neither JSON lines nor a JSON document"),
        ("[]", "no export"),
        ('{"queue": {"options": {}}, "messages": 5}', "messages: not a list"),
        ('{"queue": {"options": {}}, "messages": []}', "--to"),
        ('{"queue": {"queue": "queue:x", "options": {}}, "mesages": []}', "'mesages'"),
        ('{"message": {"data": 1}}\n', "begins with its queue"),
        ("[" * 200_000, "line 1: nested too deeply"),
        ('{"message":{"data":' + "[" * 5_000 + "]" * 5_000 + "}}\n", "line 1: nested too deeply"),
        (
            '{"queue": {"queue": "queue:x", "options": {}},\n"messages": [\n{"data": "]\\"[["},\n'
            + "[" * 5_000
            + "]" * 5_000
            + "\n]}",
            "line 4: nested too deeply",
        ),
    ],
    # A text of so many brackets is no name.
    ids=count(),
)
def test_what_is_no_export_is_refused(node: Served, text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    line = failed(node, "import", str(tmp_path / "file"), code=2)
    assert str(tmp_path / "file") in line
    assert why in line


def test_what_is_nested_deeply_is_refused_by_its_place(
    node: Served, queue: str, tmp_path: Path
) -> None:
    deep = "[" * 5_000 + "]" * 5_000
    made = {"queue": {"queue": f"queue:{queue}", "options": {"volatile": True}}}
    file = tmp_path / "lines"
    file.write_text(f'{json.dumps(made)}\n{{"message":{{"data":{deep}}}}}\n')
    error = failed(node, "import", str(file), "--partial")
    assert "line 2: " in error
    assert "nested too deeply" in error
    file.write_text(f"1\n{deep}\n")
    error = failed(node, "send", queue, "--file", str(file), code=2)
    assert "--file: line 2: nested too deeply" in error
    assert "DATA: nested too deeply" in failed(node, "send", queue, deep, code=2)
    assert told(node, "show", queue)["depth"] == 1


def test_what_only_a_node_can_read_is_taken_and_told_of_in_a_line(
    node: Served, queue: str, tmp_path: Path
) -> None:
    # A node stands less deep in its own calls than a command does: it takes a little more.
    deep = _deepest_taken(node, queue)
    assert "nested too deeply" in failed(node, "browse", queue)
    assert "--lines" in failed(node, "export", queue, "--out", str(tmp_path / "document"))
    done(node, "export", queue, "--out", str(tmp_path / "lines"), "--lines")
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
    assert deep in (tmp_path / "lines").read_text()
    assert deep in _asked(node, f"{queue}/messages")
    assert deep in _asked(node, f"{queue}/fetch", '{"wait_ms": 100}')


def _deepest_taken(node: Served, queue: str) -> str:
    """Send the message that is nested most deeply of those that a node takes."""
    for depth in range(1_000, 900, -1):
        deep = "[" * depth + "]" * depth
        try:
            _asked(node, f"{queue}/send", f'{{"data": {deep}}}')
        except urllib.error.HTTPError as error:
            error.close()
        else:
            return deep
    raise AssertionError("it takes nothing of the kind")


def _asked(node: Served, path: str, body: str | None = None) -> str:
    data = None if body is None else body.encode()
    request = urllib.request.Request(f"{node.http}/v1/queues/{path}", data)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read(), "utf-8")


def test_a_queue_is_deleted_only_with_yes(node: Served, queue: str) -> None:
    assert "--yes" in failed(node, "delete", queue, code=2)
    assert done(node, "delete", queue, "--yes") == f"ok queue:{queue} is removed\n"
    assert f"queue:{queue} does not exist" in failed(node, "send", queue, "1")


def test_what_is_wrong_is_named(node: Served, queue: str, tmp_path: Path) -> None:
    assert "queue:none does not exist" in failed(node, "send", "none", "1")  # Q3
    assert "DATA" in failed(node, "send", queue, code=2)
    assert "'x' is not NAME=VALUE" in failed(node, "send", queue, "1", "--header", "x", code=2)
    assert "--file" in failed(node, "send", queue, "--file", str(tmp_path / "no"), code=2)
    assert "--no-ack" in failed(node, "consume", queue, "-n", "0", "--no-ack", code=2)
    assert "--lane" in failed(node, "browse", queue, "--after", "1", code=2)
    assert "lane: " in failed(node, "browse", queue, "--lane", "77")
    for looked in (("browse", queue), ("browse", queue, "--delayed"), ("dead", "list", queue)):
        for n in ("0", "1001"):
            assert "--n: must be between 1 and 1000" in failed(node, *looked, "-n", n, code=2)
    assert "lanes: " in failed(node, "create", queue, "--lanes", "0", "--volatile")
    retries = ("--retry-s", "5", "--retry-max-s", "1")
    assert "retry_max_s: " in failed(node, "create", queue, *retries, "--volatile")
    # Of two that bound each other the one that is not said follows.
    done(node, "create", "brisk", "--retry-max-s", "0.5")
    options = told(node, "show", "brisk")["options"]
    assert (options["retry_s"], options["retry_max_s"]) == (0.5, 0.5)
    for option in ("--ack-timeout-s", "--retry-s", "--expire-s"):
        for value in ("nan", "inf", "-inf"):
            error = failed(node, "create", queue, f"{option}={value}", code=2)
            assert f"{option}: {value} is no number" in error
    for value in ("nan", "inf", "-1"):
        assert "--watch: " in failed(node, "list", f"--watch={value}", code=2)
    assert "CONSUMER" in failed(node, "unregister", queue, code=2)
    assert "FILE" in failed(node, "import", str(tmp_path / "no"), code=2)
    assert "--out" in failed(node, "export", queue, "--out", str(tmp_path / "a" / "b"), code=2)
    assert "protocol: " in failed(node, "promote", "nobody")  # Q10


def test_a_node_that_is_not_there_is_named_at_once() -> None:
    result = run("queue", "send", "jobs", "1", "--http", "http://127.0.0.1:9")
    assert result.returncode == 1
    assert "no node answers at http://127.0.0.1:9" in result.stderr


def test_a_durable_queue_outlives_a_node_that_is_killed(tmp_path: Path) -> None:  # Q11
    with serving(tmp_path, "--dev") as node:
        done(node, "create", "kept", "--lanes", "1")
        done(node, "register", "kept", "al", "--group", "g")
        done(node, "send", "kept", "1", "2", "3", "--num", "1")
        done(node, "send", "kept", "later", "--delay-ms", "600000")
        assert done(node, "consume", "kept", "--group", "g").split()[-1] == "1"
        before = told(node, "browse", "kept")
        node.process.kill()
        node.process.wait(TIMEOUT_S)
    with serving(tmp_path, "--dev") as node:
        figures = told(node, "show", "kept")
        assert (figures["depth"], figures["delayed"], figures["stored"]) == (2, 1, "local")
        assert [group["consumers"] for group in figures["groups"]] == [["al"]]
        assert told(node, "browse", "kept") == before
        # What may have been on its way when the node died counts as tried once, and waits a while.
        for number in ("2", "3"):
            taken = done(node, "consume", "kept", "--group", "g", "--wait", "20")
            assert taken.split()[-1] == number


GUIDE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text()


def test_the_guide_works_as_written(
    node: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = message = id_ = ""
    written = "".join(re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)).splitlines()
    assert len(written) > 50
    for text in written:
        line = text.replace("SESSION", session).replace("MESSAGE", message)
        if line.startswith("curl"):
            answer = _curl(node, line)
            session = answer.get("session") or session
            if "/send " in line or "/fetch " in line:
                message = answer.get("messages", [answer])[0]["message"]
        else:
            command, *piped = reversed(re.sub(r"\bID\b", id_, line).split(" | "))
            said = done(node, *shlex.split(command)[2:], stdin="4\n5\n6\n" if piped else "")
            id_ = next(iter(re.findall(r"\b\d{15,}\b", said)), id_)


def _curl(node: Served, line: str) -> dict[str, Any]:
    method, url = re.findall(r"^curl -s (?:-X (\w+) )?'?([^' ]+)'?", line)[0]
    body = re.findall(r"-d '(.*?)'", line)
    url = url.replace("http://127.0.0.1:7401", node.http)
    data = body[0].encode() if body else None
    request = urllib.request.Request(url, data, method=method or None)
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return {} if "/export" in url else json.loads(text)
