"""Who is gone and who merely reconnects, on one node and on several that watch together."""

from __future__ import annotations

import pytest

from chappe.endpoints.presence import Presence, PresenceOptions
from chappe.errors import ConfigError
from chappe.events.counting import CountingRecorder
from tests.endpoints.timer import ManualTimer

GRACE_S = 10.0
TAKEOVER_S = 20.0


class Wall:
    """A wall clock that goes with a timer."""

    def __init__(self, timer, skew_ms=0):
        self._timer = timer
        self._skew_ms = skew_ms

    def wall_ms(self):
        return 1_000_000_000 + round(self._timer.now * 1000) + self._skew_ms

    def monotonic(self):
        return self._timer.now


class Told:
    def __init__(self):
        self.transitions = []

    def tell(self, transition):
        self.transitions.append(transition)

    @property
    def events(self):
        return [(t.event, t.address) for t in self.transitions]


class Watch:
    """One node's presence."""

    def __init__(self, timer, home=True, skew_ms=0, **options):
        self.told = Told()
        self.recorder = CountingRecorder()
        self.home = home
        self.presence = Presence(
            timer=timer,
            clock=Wall(timer, skew_ms),
            recorder=self.recorder,
            is_home=lambda app, address: self.home,
            hook=self.told,
            options=PresenceOptions(grace_s=GRACE_S, takeover_s=TAKEOVER_S, **options),
        )
        self.online = self.presence.online
        self.offline = self.presence.offline


@pytest.fixture
def timer():
    return ManualTimer()


def test_who_comes_back_within_the_grace_time_was_never_gone(timer):
    watch = Watch(timer)
    watch.online("a", "user:bob")
    watch.offline("a", "user:bob")
    timer.move_to(GRACE_S - 0.1)
    watch.online("a", "user:bob")
    timer.move_to(10 * GRACE_S)
    assert watch.told.events == [("came", "user:bob")]
    assert not watch.presence


def test_who_stays_away_is_gone_once_the_grace_time_is_over(timer):
    watch = Watch(timer)
    watch.online("a", "user:bob")
    left_ms = Wall(timer).wall_ms()
    watch.offline("a", "user:bob")
    timer.move_to(GRACE_S - 0.1)
    assert watch.told.events == [("came", "user:bob")]
    timer.move_to(GRACE_S)
    assert watch.told.events[1:] == [("gone", "user:bob")]
    assert watch.told.transitions[1].at_ms == left_ms
    assert watch.recorder.users == {"came": 1, "gone": 1}
    watch.offline("a", "user:bob")  # it cannot go twice
    timer.move_to(3 * GRACE_S)
    watch.online("a", "user:bob")
    assert watch.told.events[2:] == [("came", "user:bob")]


def test_each_absence_is_counted_from_its_own_beginning(timer):
    watch = Watch(timer)
    watch.offline("a", "user:bob")
    timer.move_to(4)
    watch.online("a", "user:bob")
    timer.move_to(8)
    watch.offline("a", "user:bob")
    timer.move_to(17)
    assert watch.told.events == []
    timer.move_to(18)
    assert watch.told.events == [("gone", "user:bob")]


def test_users_of_two_apps_are_two_users(timer):
    watch = Watch(timer)
    watch.offline("a", "user:bob")
    watch.offline("b", "user:bob")
    watch.online("a", "user:bob")
    timer.move_to(GRACE_S)
    assert [(t.app, t.event) for t in watch.told.transitions] == [("b", "gone")]


def test_one_alarm_serves_all_and_none_is_left_behind(timer):
    watch = Watch(timer)
    for number in range(2000):
        timer.move_to(number / 1000)
        watch.offline("a", f"user:{number}")
        assert len(timer.pending) == 1
    timer.move_to(2 + GRACE_S)
    assert watch.told.events == [("gone", f"user:{number}") for number in range(2000)]
    assert timer.pending == []


def test_only_the_home_tells(timer):
    nodes = [Watch(timer, home=number == 1) for number in range(3)]
    for node in nodes:
        node.online("a", "user:bob")
        node.offline("a", "user:bob")
    timer.move_to(GRACE_S + TAKEOVER_S)
    assert [node.told.events for node in nodes] == [
        [],
        [("came", "user:bob"), ("gone", "user:bob")],
        [],
    ]
    assert timer.pending == []


def test_a_home_that_dies_before_it_tells_is_replaced(timer):
    dead, heir, other = (Watch(timer, home=number == 0) for number in range(3))
    for node in (dead, heir, other):
        node.offline("a", "user:bob")
    dead.presence.stop()
    timer.move_to(GRACE_S + 1)  # past the grace time, and nobody knows yet that it is dead
    heir.home = True
    timer.move_to(GRACE_S + TAKEOVER_S)
    assert (heir.told.events, other.told.events) == ([("gone", "user:bob")], [])


def test_an_heir_does_not_tell_what_is_so_no_more(timer):
    heir = Watch(timer, home=False)
    heir.offline("a", "user:bob")
    timer.move_to(GRACE_S + 1)
    heir.home = True
    heir.online("a", "user:bob")
    timer.move_to(GRACE_S + 1 + TAKEOVER_S)
    assert heir.told.events == [("came", "user:bob")]


def test_all_nodes_give_a_transition_the_same_id_and_another_one_another(timer):
    nodes = [Watch(timer, skew_ms=skew) for skew in (0, 700)]
    for lap in range(3):
        for node in nodes:
            at_ms = 5_000_000 + lap * 60_000
            node.offline("a", "user:bob", at_ms=at_ms)
        timer.move_to(timer.now + GRACE_S)
        for node in nodes:
            node.online("a", "user:bob", at_ms=at_ms + 10_000)
    one, other = ([t.id for t in node.told.transitions] for node in nodes)
    assert one == other
    assert len(set(one)) == 6


def test_what_is_heard_from_a_new_neighbour_is_no_news_except_of_the_gone(timer):
    watch = Watch(timer)
    watch.online("a", "user:al", news=False)
    assert watch.told.events == []
    watch.offline("a", "user:bob")  # as when a link breaks
    timer.move_to(GRACE_S)
    watch.online("a", "user:bob", news=False)  # and comes up again
    assert watch.told.events == [("gone", "user:bob"), ("came", "user:bob")]


def test_who_told_that_a_user_is_gone_tells_that_it_is_back_even_if_the_home_is_another(timer):
    # A partition: the user and the home of its address are on the other side.
    here, home = Watch(timer), Watch(timer)
    home.online("a", "user:bob")
    here.offline("a", "user:bob")
    timer.move_to(GRACE_S)
    assert here.told.events == [("gone", "user:bob")]
    here.home = False  # it is over, and what the other side says of its users is no news to it
    here.online("a", "user:bob", news=False)
    assert here.told.events == [("gone", "user:bob"), ("came", "user:bob")]
    assert home.told.events == [("came", "user:bob")]


def test_an_heir_that_told_tells_of_the_return(timer):
    heir = Watch(timer, home=False)
    heir.offline("a", "user:bob")
    timer.move_to(GRACE_S)
    heir.home = True  # the home died
    timer.move_to(GRACE_S + TAKEOVER_S)
    assert heir.told.events == [("gone", "user:bob")]
    heir.home = False
    heir.online("a", "user:bob", news=False)
    assert heir.told.events == [("gone", "user:bob"), ("came", "user:bob")]


def test_a_crowd_that_leaves_is_bounded_and_told_of_early_rather_than_never(timer):
    watch = Watch(timer, users_max=10)
    for number in range(15):
        watch.offline("a", f"user:{number}")
        assert len(watch.presence) <= 10
    assert watch.told.events == [("gone", f"user:{number}") for number in range(5)]
    timer.move_to(GRACE_S)
    assert len(watch.told.events) == 15


@pytest.mark.parametrize("name", ["grace_s", "takeover_s", "users_max"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_options_that_make_no_sense_are_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"presence.{name}"):
        PresenceOptions(**{name: value})
