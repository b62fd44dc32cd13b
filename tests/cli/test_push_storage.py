"""`chappe push storage copy`, as an operator runs it (P14)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from itertools import count
from pathlib import Path

import pytest
from redis import Redis

from chappe.cli.push.places import read_urls
from chappe.errors import ConfigError
from chappe.push.state.url import open_places, open_states
from tests.cli.process import run_here, serving
from tests.servers import RedisServer

DEPLOYMENT = Path(__file__).parents[2] / "examples" / "push-deployment"
_numbers = count()


def copy(source: str, target: str, *more: str):
    return run_here("push", "storage", "copy", "--from", source, "--to", target, *more)


def an_address(server: RedisServer) -> str:
    return f"{server.url}/?prefix=moved{next(_numbers)}&buckets=64"


def filled(folder: Path) -> str:
    """A file with two clients in it."""

    async def fill() -> None:
        states = open_states("sqlite:", folder, lambda: time.time_ns() // 1_000_000)
        for number in range(2):
            await states.user.claim_client("app", f"device {number}", f"c0{number}000016a000000")
        await states.close()

    folder.mkdir()
    asyncio.run(fill())
    return f"sqlite:{folder}/push.db"


def test_a_deployment_moves_from_a_file_to_redis_and_goes_on(tmp_path, redis_server):  # P14
    old, new = tmp_path / "old", tmp_path / "new"
    file, address = f"sqlite:{old}/push.db", an_address(redis_server)
    secret = tmp_path / "secret"
    with serving(old, "--dev") as node:
        made = node.run_here("push", "app", "create", "shop", "--secret-to", str(secret), "--json")
        key = json.loads(made.stdout)["key"]
        app = ("--app", key, "--secret-file", str(secret))
        assert node.run_here("push", "token", "phone", *app).returncode == 0
        sent = node.run_here("push", "send", "--device", "phone", "--data", "hello", *app)
        assert sent.returncode == 0, sent.stderr
        refused = copy(file, address, "--yes")
        assert refused.returncode == 2
        assert "a process has it open: stop push first, or --force" in refused.stderr
        node.terminate()
    counted = copy(file, address, "--dry-run", "--json")
    kinds = {row["kind"]: row["number"] for row in json.loads(counted.stdout)["records"]}
    assert (kinds["app"], kinds["client"], kinds["waiting"]) == (1, 1, 1)
    done = copy(file, address, "--yes")
    assert done.returncode == 0, done.stderr
    assert "all the same" in done.stdout
    assert "Routes are not copied" in done.stdout
    assert "push.key" in done.stdout
    assert copy(file, address, "--yes").returncode == 1
    # It goes on there with the key that it had: what is signed with the old secret is taken.
    config = tmp_path / "new.toml"
    states = (f'{name} = "{address}"' for name in ("meta", "user", "route", "message", "topic"))
    lines = ["[push]", f'key = "{old}/push.key"', "[push.states]", *states]
    config.write_text("\n".join(lines))
    with serving(new, "--dev", "--config", str(config)) as node:
        told = node.run_here("push", "listen", "--device", "phone", "-n", "1", "--json", *app)
        assert "hello" in told.stdout, told.stderr
        # And is seen there, though nobody is connected.
        back = f"sqlite:{tmp_path}/back.db"
        beats = copy(address, back, "--yes", "--watch", "6")
        assert beats.returncode == 2
        assert "processes of push use user, route, message, topic" in beats.stderr


def test_it_is_asked_for_before_it_begins(tmp_path):
    refused = copy(filled(tmp_path / "here"), f"sqlite:{tmp_path}/there.db")
    assert refused.returncode == 2
    assert "--yes: missing" in refused.stderr
    assert not (tmp_path / "there.db").exists()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("memory", "--from: memory is of one process"),
        ("sqlite:", "--from: say which file"),
        ("sqlite:/nowhere/push.db", "there is no such file"),
        ("mysql://x", "'mysql' is no kind of state"),
        ("one.toml", "user is missing"),
        ("more.json", "'room' is none of"),
        ("gone.toml", "No such file"),
    ],
)
def test_wrong_places_are_named(tmp_path, monkeypatch, source, reason):
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text('[push.states]\nmeta = "sqlite:/x"\n')
    names = dict.fromkeys(("meta", "user", "route", "message", "topic", "room"), "sqlite:/x")
    Path("more.json").write_text(json.dumps(names))
    refused = copy(source, f"sqlite:{tmp_path}/there.db", "--yes")
    assert refused.returncode == 2, refused.stderr
    assert reason in refused.stderr


def test_a_nodes_file_says_where_states_are_that_it_does_not_name(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text((DEPLOYMENT / "chappe.toml").read_text())
    redis = "redis://10.0.0.11:6379"
    assert read_urls(str(file), "--from") == {
        "meta": f"{redis}/1",
        "user": f"{redis}/1",
        "route": f"{redis}/1",
        "message": f"{redis}/2",
        "topic": f"{redis}/3",
    }
    # A file of the store is its own: push has one beside it.
    file.write_text('store = "sqlite:/s/store.db"\ndata = "/d"\npush.states.user = "sqlite:/u"\n')
    urls = read_urls(str(file), "--from")
    assert (urls["meta"], urls["user"]) == ("sqlite:/d/push.db", "sqlite:/u")
    for said in ('store = "memory"', 'store = "sqlite:"', "store = 5", "push = 5"):
        file.write_text(said)
        with pytest.raises(ConfigError, match="--from: "):
            read_urls(str(file), "--from")


def test_routes_are_no_state_to_be_copied_and_devices_stop_it(tmp_path):
    here, there = filled(tmp_path / "here"), f"sqlite:{tmp_path}/there.db"
    assert "routes are not copied" in copy(here, there, "--yes", "--state", "route").stderr

    async def connect() -> None:
        states = open_states("sqlite:", tmp_path / "here", lambda: 0)
        await states.route.move({"c00000016a000000": 7})
        await states.close()

    asyncio.run(connect())
    refused = copy(here, there, "--yes")
    assert refused.returncode == 2
    assert "devices are on servers 7" in refused.stderr
    assert copy(here, there, "--yes", "--force").returncode == 0


def test_each_state_goes_where_a_file_says_and_passwords_are_not_shown(tmp_path, redis_server):
    here, plan = filled(tmp_path / "here"), tmp_path / "plan.toml"
    server = RedisServer(tmp_path / "redis")
    try:
        with Redis(port=server.port) as redis:
            redis.config_set("requirepass", "sesame")
        names = ("meta", "user", "route", "message", "topic")
        secret = f"redis://:sesame@127.0.0.1:{server.port}/1?prefix=p&buckets=16"
        lines = [f'{name} = "{an_address(redis_server)}"' for name in names]
        lines[1] = f'user = "{secret}"'
        plan.write_text("\n".join(lines))
        done = copy(here, str(plan), "--yes")
        assert done.returncode == 0, done.stderr
        again = copy(here, str(plan), "--yes")
        assert again.returncode == 1
        assert "user: there is something at the target already" in again.stderr
        wrong = copy(here, secret.replace("sesame", "simsim"), "--yes")
        assert wrong.returncode == 1
        for told in (done, again, wrong):
            assert "sesame" not in told.stdout + told.stderr
            assert "simsim" not in told.stdout + told.stderr
    finally:
        server.kill()


def test_a_target_that_loses_something_is_found_out(tmp_path):
    here, there = filled(tmp_path / "here"), tmp_path / "there.db"

    async def make() -> None:
        places = open_places(f"sqlite:{there}", tmp_path, lambda: 0)
        await places["meta"].close()

    asyncio.run(make())
    losing = "CREATE TRIGGER lose AFTER INSERT ON clients BEGIN DELETE FROM clients; END"
    with sqlite3.connect(there) as connection:
        connection.execute(losing)
    connection.close()
    done = copy(here, f"sqlite:{there}", "--yes")
    assert done.returncode == 1
    assert "not the same: user: client" in done.stdout
    refused = copy(here, f"sqlite:{there}", "--yes")
    assert "--resume goes on with it" in refused.stderr
    with sqlite3.connect(there) as connection:
        connection.execute("DROP TRIGGER lose")
    connection.close()
    assert copy(here, f"sqlite:{there}", "--yes", "--resume").returncode == 0
