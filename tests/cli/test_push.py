"""`chappe push`: apps, tokens, users, notes, jobs and topics of a node, from the command line."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from chappe.cli.push.tables import plain
from tests.cli.process import Served, run, run_here, serving, started
from tests.cli.test_rooms import waiting
from tests.processes import read_line


class App(NamedTuple):
    """An app of the node, and what its servers sign with."""

    node: Served
    key: str
    secret: Path

    def __call__(self, *arguments: str, **more: Any) -> Any:
        """What a signed command answers."""
        done = self.tried(*arguments, **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def tried(self, *arguments: str, **more: Any) -> Any:
        """How a signed command ends."""
        signed = ("--app", self.key, "--secret-file", str(self.secret), "--json")
        return self.node.run_here("push", *arguments, *signed, **more)

    def shown(self, *arguments: str) -> str:
        """What a command shows a person; an administrator's, in development."""
        done = self.node.run_here("push", *arguments, "--app", self.key)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("data"), "--dev") as served:
        yield served
        code, log = served.terminate()
        assert code == 0, log
        assert "Traceback" not in log


@pytest.fixture
def app(node: Served, tmp_path: Path, request: pytest.FixtureRequest) -> App:
    """A closed app of this test alone."""
    return made(node, tmp_path / "secret", request.node.name[:60])


@pytest.fixture
def open_app(node: Served, tmp_path: Path, request: pytest.FixtureRequest) -> App:
    return made(node, tmp_path / "secret", request.node.name[:60], "--open")


def made(node: Served, secret: Path, name: str, *flags: str) -> App:
    name = "".join(c if c.isalnum() else "-" for c in name)
    done = node.run_here(
        "push", "app", "create", name, "--json", "--secret-to", str(secret), *flags
    )
    assert done.returncode == 0, done.stderr
    return App(node, json.loads(done.stdout)["key"], secret)


@contextmanager
def listening(app: App, device: str, *flags: str, log: Path) -> Iterator[Any]:
    """A device that has connected, and prints what it gets."""
    signed = ("--app", app.key, "--secret-file", str(app.secret), "--json")
    command = ("push", "listen", *signed, "--device", device, "--http", app.node.http, *flags)
    with started(*command, log=log) as process:
        app_is_ready(log)
        yield process


def app_is_ready(log: Path) -> None:
    for _ in waiting("the device did not connect"):
        if "connected" in log.read_text():
            return


def told(process: Any) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(read_line(process.stdout))
    return line


def test_an_app_is_made_and_its_key_and_secret_are_printed_once(node: Served) -> None:  # P10
    done = node.run("push", "app", "create", "printed", "--open")
    assert done.returncode == 0, done.stderr
    (_, key), (_, secret, *_) = (line.split() for line in done.stdout.splitlines())
    shown = node.run_here("push", "app", "show", key)
    assert "printed" in shown.stdout
    assert "by themselves" in shown.stdout
    listed = node.run_here("push", "app", "list")
    assert key in listed.stdout
    assert secret not in shown.stdout + listed.stdout
    again = node.run_here("push", "app", "create", "printed")
    assert again.returncode == 1
    assert "there is an app called printed already" in again.stderr


def test_a_secret_goes_to_a_file_of_its_owner_only(app: App, node: Served) -> None:
    assert stat.S_IMODE(app.secret.stat().st_mode) == 0o600
    # Before a secret is made that could not be kept.
    refused = node.run_here("push", "app", "create", "other", "--secret-to", str(app.secret))
    assert refused.returncode == 2
    assert "--secret-to" in refused.stderr
    assert "other" not in node.run_here("push", "app", "list").stdout


def test_a_file_for_a_secret_that_was_not_made_is_not_left_behind(
    node: Served, tmp_path: Path
) -> None:
    file = tmp_path / "never"
    refused = node.run_here("push", "app", "create", "no good name", "--secret-to", str(file))
    assert refused.returncode == 1
    assert not file.exists()


def test_an_app_is_changed_and_what_is_not_said_stays(app: App, node: Served) -> None:
    def change(*flags: str) -> Any:
        done = node.run_here("push", "app", "change", app.key, "--json", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["app"]

    assert change("--open", "--devices-max", "7")["limits"]["devices_max"] == 7
    changed = change("--sends-per-s", "5", "--disable")
    assert (changed["open"], changed["enabled"]) == (True, False)
    assert changed["limits"] == {"sends_per_s": 5.0, "devices_max": 7}
    assert "it is switched off" in app.tried("jobs").stderr
    assert change("--enable")["enabled"]
    none = node.run_here("push", "app", "change", app.key)
    assert (none.returncode, "say what is to be changed" in none.stderr) == (2, True)


def test_a_new_secret_takes_the_place_of_the_old(app: App, node: Served, tmp_path: Path) -> None:
    assert app("jobs")["jobs"] == []
    new = tmp_path / "new"
    done = node.run_here("push", "app", "rotate", app.key, "--secret-to", str(new))
    assert done.returncode == 0, done.stderr
    refused = app.tried("jobs")
    assert refused.returncode == 1
    assert "x-chappe-signature" in refused.stderr
    assert app._replace(secret=new)("jobs")["jobs"] == []


def test_a_removed_app_is_gone(app: App, node: Served) -> None:
    kept = node.run_here("push", "app", "remove", app.key)
    assert (kept.returncode, "--yes: missing" in kept.stderr) == (2, True)
    assert node.run_here("push", "app", "remove", app.key, "--yes").returncode == 0
    assert node.run_here("push", "app", "show", app.key).returncode == 1


def test_a_secret_may_be_in_the_environment(app: App, node: Served) -> None:
    secret = app.secret.read_text().strip()
    command = ("push", "jobs", "--app", app.key, "--json")
    assert node.run_here(*command, CHAPPE_PUSH_SECRET=secret).returncode == 0
    wrong = node.run_here(*command, CHAPPE_PUSH_SECRET=secret[::-1])
    assert wrong.returncode == 1
    assert "x-chappe-signature" in wrong.stderr
    assert secret[::-1] not in wrong.stderr


def test_a_device_of_a_closed_app_gets_the_very_bytes(app: App, tmp_path: Path) -> None:  # P8
    (tmp_path / "picture").write_bytes(b"\xff\x00\n")
    with listening(app, "phone-1", log=tmp_path / "log") as device:
        sent = app("send", "--device", "phone-1", "--data", '{"hi":  1}', "--type", "7")
        note = told(device)
        assert note | {"ts": 0} == {
            "note": sent["note"],
            "job": sent["job"],
            "type": 7,
            "ts": 0,
            "data": '{"hi":  1}',
        }
        app("send", "--device", "phone-1", "--data", "-", stdin="from a pipe\n")
        assert told(device)["data"] == "from a pipe\n"
        app("send", "--device", "phone-1", "--file", str(tmp_path / "picture"))
        assert told(device)["data64"] == "/wAK"


def test_the_line_of_the_fixed_surface_works_as_it_is(open_app: App, node: Served) -> None:
    token = json.loads(node.run_here("push", "token", "d", "--app", open_app.key, "--json").stdout)
    command = ("push", "send", "--app", open_app.key, "--client", token["client"], "--data", "hi")
    done = node.run(*command)
    assert done.returncode == 0, done.stderr
    assert "aimed at 1, sent to 0, offline 1" in done.stdout


def test_an_open_app_needs_no_secret_to_listen_and_clicks_are_counted(
    open_app: App, tmp_path: Path
) -> None:  # P9
    log = tmp_path / "log"
    command = ("--app", open_app.key, "--device", "tab", "--topic", "sport", "--click", "-n", "1")
    with started("push", "listen", *command, "--http", open_app.node.http, log=log) as device:
        app_is_ready(log)
        sent = open_app("send", "--topic", "sport", "--data", "[bold]goal[/]", "--name", "goals")
        assert device.stdout is not None
        assert read_line(device.stdout).endswith("  [bold]goal[/]\n")
        assert device.wait(30) == 0
    job = open_app("job", sent["job"])["job"]
    assert (job["aimed"], job["sent"], job["clicked"]) == (1, 1, 1)
    for shown in (open_app.shown("jobs"), open_app.shown("job", sent["job"])):
        assert "goals" in shown
        assert "topic sport" in shown
        assert "100.0%" in shown
    (listed,) = open_app("jobs", "-n", "1")["jobs"]
    assert listed["job"] == sent["job"]
    assert open_app("jobs", "--before", sent["job"])["jobs"] == []


def test_a_replaced_listener_ends_and_says_so(app: App, tmp_path: Path) -> None:  # P3, P15
    with listening(app, "phone", log=tmp_path / "first") as first:
        with listening(app, "phone", log=tmp_path / "second"):
            assert first.wait(30) == 1
        assert "chappe:" in (tmp_path / "first").read_text()


def test_sending_the_same_twice_is_sent_once(app: App) -> None:
    app("token", "d")
    flags = ("--device", "d", "--data", "x", "--idempotency-key", "order-7")
    first = app("send", *flags)
    assert app("send", *flags)["job"] == first["job"]
    assert len(app("jobs")["jobs"]) == 1


def test_all_flags_of_a_send_reach_the_node(app: App) -> None:
    app("token", "d")
    app("user", "bind", "alice", "--device", "d")
    sent = app(
        *("send", "--user", "alice", "--data", "x", "--ttl", "60", "--priority", "high"),
        *("--collapse", "weather", "--once", "--name", "rain"),
    )
    job = app("job", sent["job"])["job"]
    assert (job["aim"], job["target"], job["name"]) == ("user", "alice", "rain")
    assert job["expires_ms"] - job["created_ms"] == 60_000
    app("send", "--user", "alice", "--data", "y", "--collapse", "weather")
    # The first does not wait any more, as the second took its place.
    assert app("job", sent["job"])["job"]["dropped"] == 1
    for flag, named in (("--type", "type"), ("--ttl", "ttl_s")):
        refused = app.tried("send", "--user", "alice", "--data", "x", flag, "999999999")
        assert refused.returncode == 1
        assert named in refused.stderr


def test_whom_a_note_did_not_find_is_named(app: App) -> None:
    app("token", "there")
    shown = app.shown(
        *("send", "--device", "there", "--device", "[red]no", "--user", "nobody", "--data", "x")
    )
    assert "[red]no" in shown
    assert "nobody" in shown


def test_a_note_is_taken_back_by_its_id_or_its_jobs_and_replaced(app: App, tmp_path: Path) -> None:
    app("token", "d")
    first, second = (app("send", "--device", "d", "--data", text) for text in ("1", "2"))
    assert app("cancel", first["note"])["withdrawn"] == 1
    assert app("cancel", second["job"])["withdrawn"] == 1
    assert "taken back" in app.shown("jobs")
    third = app("send", "--device", "d", "--data", "3")
    app("replace", third["note"], "--data", "three")
    with listening(app, "d", "-n", "1", log=tmp_path / "log") as device:
        assert told(device)["data"] == "three"
        assert device.wait(30) == 0
    fourth = app("send", "--device", "d", "--data", "4")
    assert "is taken back; it waited for 1" in app.shown("cancel", fourth["note"])
    fifth = app("send", "--device", "d", "--data", "5")
    with listening(app, "d", "-n", "1", log=tmp_path / "log") as device:
        assert told(device)["data"] == "5"
        assert device.wait(30) == 0
    assert "has arrived: nobody waited for it" in app.shown("cancel", fifth["note"])


def test_tokens_are_given_and_revoked(app: App, tmp_path: Path) -> None:  # P5, P10
    ticket = app("token", "d")
    assert ticket["comet"] == app.node.addresses["comet"]
    assert ticket["client"] in app.shown("token", "d")
    file = tmp_path / "token"
    file.write_text(ticket["token"] + "\n")
    assert app("revoke", "--stolen", str(file))["revoked"] == 1
    assert app("revoke", "--device", "d")["revoked"] == 1
    unknown = app.tried("revoke", "--stolen", "-", stdin="never-given")
    assert (unknown.returncode, "the app has no such" in unknown.stderr) == (1, True)


def test_users_have_devices(app: App) -> None:  # P8
    client = app("token", "d")["client"]
    assert app("user", "bind", "al[ice]", "--device", "d")["client"]["user"] == "al[ice]"
    assert [each["device"] for each in app("user", "list", "al[ice]")["clients"]] == ["d"]
    assert "of al[ice]" in app.shown("client", "show", "--client", client)
    assert "1 device of al[ice]" in app.shown("user", "list", "al[ice]")
    app("user", "unbind", "--client", client)
    assert app("user", "list", "al[ice]")["clients"] == []
    assert app.tried("client", "remove", "--device", "d").returncode == 2
    app("client", "remove", "--device", "d", "--yes")
    assert app.tried("client", "show", "--device", "d").returncode == 1


def test_topics_have_subscribers(app: App) -> None:
    client = app("token", "d")["client"]
    app("topic", "subscribe", "sport", "news/world", "--device", "d")
    assert [each["topic"] for each in app("topics")["topics"]] == ["news/world", "sport"]
    assert app("topic", "members", "news/world")["clients"] == [client]
    assert f"1 subscribe to sport\n{client}" in app.shown("topic", "members", "sport")
    assert "more with --after news/world" in app.shown("topics", "-n", "1")
    app("topic", "subscribe", "züri", r"a\b", "--device", "d")
    assert "züri" in app.shown("topics")
    app("topic", "unsubscribe", "sport", "--client", client)
    assert app("topic", "members", "sport")["subscribers"] == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("send", "--data", "x"), "say whom it is for"),
        (("send", "--device", "d"), "say either --data or --file"),
        (("send", "--device", "d", "--data", "x", "--file", "y"), "say either --data or --file"),
        (("send", "--device", "d", "--file", "/nowhere/at/all"), "--file: "),
        (("send", "--device", "d", "--data", "x", "--ttl", "0"), "--ttl: must be at least 1"),
        (("replace", "p", "--data", "x", "--ttl", "0"), "--ttl: must be at least 1"),
        (("revoke",), "say either --client or --device"),
        (("revoke", "--stolen", "/dev/null"), "--stolen: the token must not be empty"),
        (("revoke", "--stolen", "x", "--device", "d"), "--stolen: not together with"),
        (("user", "bind", "u", "--client", "c", "--device", "d"), "say either"),
        (("jobs", "-n", "0"), "--n: must be between 1 and 1000"),
        (("jobs", "--watch", "nan"), "--watch: "),
        (("topics", "-n", "1001"), "--n: must be between 1 and 1000"),
        (("listen", "--device", "d", "-n", "-1"), "--n: must not be below 0"),
        (("jobs", "--secret-file", "/nowhere/at/all"), "--secret-file: "),
        (("jobs", "--secret-file", "/dev/null"), "--secret-file: this is not an app's secret"),
        (("devices", "--count", "0"), "--count: must be between 1 and"),
        (("devices", "--count", "5", "--processes", "6"), "--processes: must be between 1 and 5"),
        (("devices", "--count", "5", "--rate", "nan"), "--rate: must be above 0"),
        (("devices", "--count", "5", "--heartbeat", "0"), "--heartbeat: must be at least 1"),
        (("devices", "--count", "5", "--duration", "inf"), "--duration: must be 0 or above"),
        (("devices", "--count", "1000000"), "--processes"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_named(arguments: tuple[str, ...], named: str) -> None:
    refused = run_here("push", *arguments, "--app", "k")
    assert refused.returncode == 2, refused.stderr
    assert named in refused.stderr.replace("\n", " ")


def test_a_key_that_cannot_be_is_refused_before_anybody_is_asked() -> None:
    refused = run_here("push", "jobs", "--app", "no key")
    assert refused.returncode == 2
    assert "--app: an app's key is" in refused.stderr


def test_no_flag_takes_a_secret() -> None:
    said = run("push", "send", "--help").stdout
    assert "--secret-file" in said
    assert "--secret " not in said


def test_what_a_terminal_would_obey_is_escaped_and_what_prints_is_not() -> None:
    assert plain("züri 雪 [x] 'y'") == "züri 雪 [x] 'y'"
    assert plain("a\x1b[2J\n\u202eb\\") == r"a\x1b[2J\n\u202eb\\"
