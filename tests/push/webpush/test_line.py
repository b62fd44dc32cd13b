"""Lines of parcels: bounds, hosts that are slow or down, what comes again."""

from __future__ import annotations

from msgspec import structs

from chappe.push.note import Note
from chappe.push.webpush.line import REST_AFTER, REST_S, Lot, Lots, Parcel, Parcels
from chappe.push.webpush.options import WebPushOptions
from tests.push.webpush.browsers import Browser

NOTE = Note("p1", "j1", "shop", 3, 0, 60_000, b"")
SUBSCRIPTION = Browser("https://push.example/x").subscription


def a_note(app="shop") -> Note:
    return structs.replace(NOTE, app=app)


def a_parcel(client="c1", host="push.example", app="shop") -> Parcel:
    return Parcel(a_note(app), b"{}", client, SUBSCRIPTION, b"", host)


def parcels(**options) -> Parcels:
    return Parcels(WebPushOptions(**options))


def anybody(app: str) -> bool:
    return True


def test_lots_come_out_as_they_went_in_and_make_room():
    lots = Lots(WebPushOptions(queue_max=10))
    assert lots.room("shop") == 5
    lots.put(Lot(NOTE, b"a", ["c1", "c2"]))
    lots.put(Lot(NOTE, b"b", ["c3"]))
    assert (lots.room("shop"), lots.clients) == (2, 3)
    assert [lots.take(anybody, 9).text for _ in range(2)] == [b"a", b"b"]
    assert lots.take(anybody, 9) is None
    assert (lots.room("shop"), lots.clients) == (5, 0)


def test_no_app_leaves_others_without_room():
    lots = Lots(WebPushOptions(queue_max=100, queue_bytes_max=100))
    for app in ("one", "two", "three"):
        while room := lots.room(app):
            lots.put(Lot(a_note(app), b"", ["c"] * room))
    assert lots.clients < 100
    assert lots.room("shop") > 0
    lots.put(Lot(a_note("one"), bytes(50), []))
    assert lots.room("one") == 0
    assert lots.room("shop") > 0


def test_lots_are_bounded_in_bytes_too():
    lots = Lots(WebPushOptions(queue_bytes_max=10))
    lots.put(Lot(NOTE, bytes(10), ["c1"]))
    assert lots.room("shop") == 0
    lots.take(anybody, 9)
    assert lots.room("shop") > 0


def test_apps_take_turns_at_lots_however_large_they_are():
    lots = Lots(WebPushOptions())
    lots.put(Lot(a_note("large"), b"abc", [f"l{n}" for n in range(5)]))
    lots.put(Lot(a_note("small"), b"s", ["s1"]))
    taken = [lots.take(anybody, 2).clients for _ in range(4)]
    assert taken == [["l0", "l1"], ["s1"], ["l2", "l3"], ["l4"]]
    assert lots.take(anybody, 2) is None
    assert (lots.clients, lots._bytes.total(), lots._waiting) == (0, 0, {})


def test_who_may_not_go_on_is_passed_over():
    lots = Lots(WebPushOptions())
    for app in ("stuck", "well"):
        lots.put(Lot(a_note(app), b"", ["c"]))
    assert lots.take(lambda app: app != "stuck", 9).note.app == "well"
    assert lots.take(lambda app: app != "stuck", 9) is None
    assert lots.take(anybody, 9).note.app == "stuck"


def test_apps_and_their_hosts_take_turns():
    line = parcels()
    for n in range(3):
        line.put(a_parcel(f"dead{n}", "dead", "large"))
    line.put(a_parcel("quick", "quick", "large"))
    line.put(a_parcel("other", "dead", "small"))
    taken = [line.take(0).client for _ in range(5)]
    assert taken == ["dead0", "other", "quick", "dead1", "dead2"]
    assert line.take(0) is None
    assert (line._ready, len(line)) == ({}, 5)


def test_an_app_with_too_much_under_way_leaves_others_room_to_be_put_in_and_off():
    line = parcels(concurrency_max=1, retries_max=10)
    while line.has_room("large"):
        line.put(a_parcel(app="large"))
    assert line.has_room("small")
    while line.put_off(a_parcel(app="large"), 5.0):
        pass
    assert line.put_off(a_parcel("s", app="small"), 1.0)
    assert len(line) == 4 + 5 + 1


def test_no_more_attempts_are_under_way_than_may_be():
    line = parcels(concurrency_max=2)
    for client in "abc":
        line.put(a_parcel(client))
    first, _ = line.take(0), line.take(0)
    assert line.take(0) is None
    line.done(first, 0, answered=True)
    assert line.take(0).client == "c"


def test_a_host_that_is_slow_leaves_room_for_others():
    line = parcels(concurrency_max=3, host_concurrency_max=2)
    for client in "abc":
        line.put(a_parcel(client, "slow"))
    line.put(a_parcel("d", "quick"))
    assert [line.take(0).client for _ in range(3)] == ["a", "d", "b"]


def test_what_is_put_off_comes_when_it_is_due_the_earliest_first():
    line = parcels()
    for client, until in (("late", 9.0), ("early", 5.0)):
        assert line.put_off(a_parcel(client), until)
    assert line.take(4.9) is None
    assert line.due == 5.0
    assert line.take(5.0).client == "early"
    assert line.take(5.0) is None
    assert line.take(99.0).client == "late"


def test_only_so_many_are_put_off():
    line = parcels(retries_max=2)
    assert line.put_off(a_parcel(), 1.0)
    assert not line.put_off(a_parcel(), 1.0)
    assert len(line) == 1


def fail(line: Parcels, times: int, now: float) -> None:
    for _ in range(times):
        line.put(a_parcel())
        line.done(line.take(now), now, answered=False)


def test_a_host_that_fails_time_after_time_is_left_alone_for_a_while():
    line = parcels()
    fail(line, REST_AFTER - 1, 0.0)
    assert line.rests("push.example", 0.0) is None
    fail(line, 1, 0.0)
    assert line.rests("push.example", 0.0) == REST_S
    assert line.rests("other.example", 0.0) is None
    assert line.rests("push.example", REST_S) is None


def test_an_answer_ends_a_row_of_failures_and_no_attempt_is_neither():
    line = parcels()
    fail(line, REST_AFTER - 1, 0.0)
    line.put(a_parcel())
    line.done(line.take(0.0), 0.0, answered=None)
    assert line.rests("push.example", 0.0) is None
    line.put(a_parcel())
    line.done(line.take(0.0), 0.0, answered=True)
    fail(line, REST_AFTER - 1, 0.0)
    assert line.rests("push.example", 0.0) is None


def test_strangers_cannot_make_it_remember_ever_more_hosts():
    line = parcels()
    for number in range(10_001):
        line.put(a_parcel(host=f"{number}.example"))
        line.done(line.take(0.0), 0.0, answered=False)
    assert len(line._failures) <= 10_000
    assert not line._under_way
