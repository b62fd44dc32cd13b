"""What is known of a link: delays of the last measurements, shares, counts."""

from __future__ import annotations

from random import Random

from chappe.rooms.linkstats import End, Link, LinkBook, LinkStats
from chappe.wire.rooms import RoleKind


def make_link(number):
    return Link(End(RoleKind.PUBLISHER, "gw"), End(RoleKind.PROXY, f"p{number}", number))


def test_percentiles_are_those_of_a_sorted_list():  # R15
    stats, delays = LinkStats(1_000), list(range(1, 101))
    Random(1).shuffle(delays)
    for delay in delays:
        stats.arrive(delay, 1)
    assert (stats.quantile_us(0.5), stats.quantile_us(0.99), stats.mean_us) == (50, 99, 50)
    assert stats.quantile_us(1.0) == 100
    assert stats.quantile_us(0.0) == 1


def test_before_anything_is_tried_nothing_is_known_and_nothing_is_held_against_it():
    row = LinkStats(10).row(make_link(1))
    assert (row.mean_us, row.p50_us, row.p99_us, row.last_us) == (None, None, None, None)
    assert (row.share, row.arrived, row.failed) == (1.0, 0, 0)


def test_only_the_last_measurements_count_though_all_are_counted():
    stats = LinkStats(3)
    for delay in (900, 800):
        stats.arrive(delay, 1)
    stats.fail()
    assert round(stats.share, 3) == 0.667
    for delay in (10, 20, 30):
        stats.arrive(delay, 2)
    assert (stats.share, stats.mean_us, stats.quantile_us(0.99)) == (1.0, 20, 30)
    assert (stats.arrived, stats.failed, stats.total_us, stats.tried) == (5, 1, 1_760, 3)


def test_a_window_stays_right_whatever_goes_through_it():
    rng, stats, kept = Random(7), LinkStats(50), []
    for _ in range(2_000):
        if rng.random() < 0.2:
            stats.fail()
            kept.append(None)
        else:
            delay = rng.randrange(20)
            stats.arrive(delay, 1)
            kept.append(delay)
        kept = kept[-50:]
        came = sorted(delay for delay in kept if delay is not None)
        assert stats.share == len(came) / len(kept)
        assert stats.mean_us == (sum(came) // len(came) if came else None)
        assert stats.quantile_us(1.0) == (came[-1] if came else None)


def test_rounds_in_a_row_begin_anew_when_it_goes_the_other_way():
    stats = LinkStats(10)
    for well in (False, False, True, True, True):
        stats.try_again(well=well)
    assert (stats.in_a_row, stats.well_in_a_row) == (0, 3)
    stats.try_again(well=False)
    assert (stats.in_a_row, stats.well_in_a_row) == (1, 0)


def test_what_is_recent_is_told_once():
    stats = LinkStats(100)
    for delay in (500, 10, 30):
        stats.arrive(delay, 1)
    stats.fail()
    assert stats.recent() == (4, 1, 30, 500)
    stats.arrive(7, 1)
    assert stats.recent() == (1, 0, 7, 7)
    assert stats.recent() == (0, 0, None, None)


def test_a_book_forgets_the_link_tried_longest_ago_and_says_so():
    forgotten = []
    book = LinkBook(2, 10, lambda link, stats: forgotten.append((link, stats)))
    first = book.take(make_link(1))
    book.take(make_link(2))
    assert book.take(make_link(1)) is first
    book.take(make_link(3))
    assert [link for link, _ in forgotten] == [make_link(2)]
    assert [link for link, _ in book] == [make_link(1), make_link(3)]
    book.drop(make_link(1))
    assert forgotten[-1] == (make_link(1), first)
    assert len(book) == 1
