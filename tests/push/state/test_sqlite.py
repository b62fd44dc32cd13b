"""The push file: whose it is, how it is written, and who else may have it open."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from chappe.errors import ConfigError, StorageError
from chappe.push.state.sqlite import SqlitePlace
from chappe.push.state.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION
from chappe.store.sqlite import SqliteStore
from tests.contract.push_states import NOW_MS, client_id
from tests.loop import on_loop

REPOSITORY = Path(__file__).parents[3]
_CLAIMS = """
import asyncio, sys
from pathlib import Path
from chappe.push.state.sqlite import SqlitePlace

async def main():
    place = SqlitePlace(Path(sys.argv[1]), lambda: 0)
    for i in range(50):
        client = await place.user.claim_client("app", f"device {i}", f"c{sys.argv[2]}-{i}")
        print(client.id)
    await place.close()

asyncio.run(main())
"""


def open_place(file: Path) -> SqlitePlace:
    return SqlitePlace(file, lambda: NOW_MS)


@on_loop
async def test_an_acknowledged_change_has_been_flushed(tmp_path: Path):
    place = open_place(tmp_path / "push.db")
    connection = place._database._connection  # type: ignore[attr-defined]
    ((level,),) = connection.execute("PRAGMA synchronous")
    ((mode,),) = connection.execute("PRAGMA journal_mode")
    await place.close()
    assert (level, mode) == (2, "wal")  # FULL: the log is flushed at every commit


@on_loop
async def test_processes_share_a_file_and_agree_on_who_is_who(tmp_path: Path):
    file = tmp_path / "push.db"
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CLAIMS, str(file), str(number)),
            stdout=asyncio.subprocess.PIPE,
            cwd=REPOSITORY,
        )
        for number in range(3)
    ]
    said = [(await process.communicate())[0].split() for process in started]
    assert len(said[0]) == 50
    assert said[0] == said[1] == said[2]


@on_loop
async def test_a_store_is_no_push_file_nor_the_other_way_round(tmp_path: Path):
    await SqliteStore(tmp_path / "store.db").close()
    with pytest.raises(ConfigError, match=r"push: .*store\.db: a database of another program"):
        open_place(tmp_path / "store.db")
    await open_place(tmp_path / "push.db").close()
    with pytest.raises(ConfigError, match=r"store: .*push\.db: a database of another program"):
        SqliteStore(tmp_path / "push.db")


def test_a_file_of_a_later_version_is_refused(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "push.db")) as other:
        other.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with pytest.raises(ConfigError, match="later version"):
        open_place(tmp_path / "push.db")


@on_loop
async def test_a_file_of_an_earlier_version_gets_the_tables_that_it_lacks(tmp_path: Path):
    file = tmp_path / "push.db"
    place = open_place(file)
    client = await place.user.claim_client("app", "dev", client_id())
    await place.close()
    with closing(sqlite3.connect(file)) as other:
        for table in ("uses", "bridges"):
            other.execute(f"DROP TABLE {table}")
        other.execute("DROP INDEX subscribers_on_server")
        other.execute("PRAGMA user_version = 1")
    place = open_place(file)
    assert await place.user.clients_of_devices("app", ["dev"]) == {"dev": client.id}
    await place.close()
    with closing(sqlite3.connect(file)) as other:
        ((version,),) = other.execute("PRAGMA user_version")
        names = {name for (name,) in other.execute("SELECT name FROM sqlite_master")}
    assert version == SCHEMA_VERSION
    assert names >= {"uses", "uses_expire", "bridges", "subscribers_on_server"}


@on_loop
async def test_a_file_of_an_earlier_version_with_other_tables_is_refused(tmp_path: Path):
    file = tmp_path / "push.db"
    await open_place(file).close()
    with closing(sqlite3.connect(file)) as other:
        other.execute("ALTER TABLE jobs DROP COLUMN dropped")
        other.execute("PRAGMA user_version = 1")
    said = (
        r"push: .*push\.db: written by an earlier version, whose table jobs was another \(schema 1"
    )
    for _ in range(2):
        with pytest.raises(ConfigError, match=said):
            open_place(file)


@pytest.mark.parametrize("file", [None, "push.db"])
@on_loop
async def test_what_cannot_be_written_is_told_and_disturbs_nobody(tmp_path: Path, file: str | None):
    place = SqlitePlace(tmp_path / file if file else None, lambda: NOW_MS)
    good, bad, number = await asyncio.gather(
        place.user.claim_client("app", "dev", client_id()),
        place.user.claim_client("app", "\ud800", client_id()),
        place.route.move({client_id(): 1 << 70}),
        return_exceptions=True,
    )
    assert isinstance(bad, StorageError)
    assert isinstance(number, StorageError)
    assert await place.user.clients_of_devices("app", ["dev"]) == {"dev": good.id}  # type: ignore[union-attr]
    await place.close()
