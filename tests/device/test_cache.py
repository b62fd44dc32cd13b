"""What a device keeps across restarts: for its owner only, whole or not at all (P15)."""

import os
import stat

import pytest

from chappe.device.cache import FileCache
from chappe.device.grant import Grant, decode_grant
from chappe.device.shown import Shown
from chappe.errors import BadRequest

GRANT = Grant(client="c1", token="t", comet="tcp://h:1", identity=bytes(32), expires_ms=5)


def cache_in(folder, app: str = "shop", device: str = "d1") -> FileCache:
    return FileCache(folder / "sub" / "push.json", app=app, device=device)


def test_a_grant_is_found_again(tmp_path):
    cache_in(tmp_path).store_grant(GRANT)
    assert cache_in(tmp_path).load_grant() == GRANT


def test_nobody_else_may_read_it(tmp_path):
    before = os.umask(0)
    try:
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "push.json.tmp").write_text("left over, for all to read")
        cache = cache_in(tmp_path)
        cache.store_grant(GRANT)
        cache.show(Shown((), 10), "p1")
    finally:
        os.umask(before)
    for path in (tmp_path / "sub").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in (tmp_path / "sub").iterdir()) == ["push.json", "push.json.ids"]


def test_another_apps_or_devices_grant_is_not_used(tmp_path):
    cache_in(tmp_path).store_grant(GRANT)
    assert cache_in(tmp_path, app="other").load_grant() is None
    assert cache_in(tmp_path, device="d2").load_grant() is None


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"app":"shop"}', b"[]"])
def test_a_damaged_grant_is_none(tmp_path, content):
    cache = cache_in(tmp_path)
    cache.store_grant(GRANT)
    (tmp_path / "sub" / "push.json").write_bytes(content)
    assert cache.load_grant() is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "sub").write_text("a file, where a folder should be")
    cache = cache_in(tmp_path)
    cache.store_grant(GRANT)
    cache.show(Shown((), 10), "p1")
    assert cache.load_grant() is None
    assert len(cache.load_shown(10)) == 0


def test_what_was_shown_is_found_again_and_bounded(tmp_path):
    cache, shown = cache_in(tmp_path), Shown((), 10)
    for n in range(25):
        shown.add(f"p{n}")
        cache.show(shown, f"p{n}")
    lines = (tmp_path / "sub" / "push.json.ids").read_text().splitlines()
    assert len(lines) <= 20
    again = cache_in(tmp_path).load_shown(10)
    assert list(again) == [f"p{n}" for n in range(15, 25)]


def test_an_id_that_was_not_written_wholly_does_not_spoil_the_next(tmp_path):
    cache, shown = cache_in(tmp_path), Shown((), 10)
    cache.show(shown, "p1")
    with (tmp_path / "sub" / "push.json.ids").open("ab") as file:
        file.write(b"p2-was-c")
    again = cache_in(tmp_path)
    again.show(again.load_shown(10), "p3")
    assert list(cache_in(tmp_path).load_shown(10)) == ["p1", "p3"]


def test_a_grant_does_not_show_its_token():
    assert "token" not in repr(GRANT)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"identity": b"short"}, "identity: 5 bytes, 32 wanted"),
        ({"comet": "http://h:1"}, "comet: tcp://host:port or tls"),
        ({"comet": "tcp://h"}, "comet: tcp://host:port or tls"),
        ({"comet": "tcp://h:x"}, "comet: "),
    ],
)
def test_a_grant_of_no_use_is_refused_by_the_name_of_its_field(change, why):
    import msgspec

    with pytest.raises(BadRequest, match=why):
        decode_grant(msgspec.json.encode(msgspec.to_builtins(GRANT) | change))
