"""Somebody is told when a link fails, once, and again when it is well."""

from __future__ import annotations

import msgspec
import pytest
from structlog.testing import capture_logs

from chappe.events.counting import CountingRecorder
from chappe.rooms.alarm import Alarms
from chappe.rooms.linkstats import End, Link, LinkStats
from chappe.rooms.options import ProbeOptions
from chappe.wire.rooms import RoleKind

LINK = Link(End(RoleKind.PROXY, "px", 3), End(RoleKind.BROKER, "bk", 4, 1))


class Clock:
    def wall_ms(self):
        return 1_794_774_463_244

    def wall_us(self):
        return 1_794_774_463_244_000

    def monotonic(self):
        return 0.0


class Telling(CountingRecorder):
    """Keeps what it is told of."""

    def __init__(self):
        super().__init__()
        self.told = []

    def tell(self, kind, app, **columns):
        self.told.append((kind, columns))


class Watch:
    """A link, judged after each round."""

    def __init__(self, **options):
        options = {"alarm_failures": 3, "samples_max": 200} | options
        self.recorder = Telling()
        self.alarms = Alarms(
            options=ProbeOptions(**options), name="gw", clock=Clock(), recorder=self.recorder
        )
        self.notices = []
        self.alarms.hook = self.notices.append
        self.stats = LinkStats(options["samples_max"])

    def run(self, *rounds):
        for well in rounds:
            if well:
                self.stats.arrive(100, 1)
            else:
                self.stats.fail()
            self.stats.try_again(well=well)
            self.alarms.judge(LINK, self.stats)

    @property
    def told(self):
        return [(notice.state, notice.cause) for notice in self.notices]


def test_one_that_is_lost_now_and_then_is_no_alarm():  # R15
    watch = Watch(sla=0.5)
    watch.run(*[False, False, True] * 30)
    assert watch.told == []
    assert len(watch.alarms) == 0


def test_so_many_failures_in_a_row_are_an_alarm_that_is_told_once():  # R15
    watch = Watch()
    watch.run(True, False, False)
    assert watch.told == []
    watch.run(False)
    assert watch.told == [("raised", "failed")]
    watch.run(False, False, False)
    assert watch.told == [("raised", "failed")]
    assert watch.alarms.causes(LINK) == ("failed",)
    assert watch.alarms.raised == {("proxy", "broker", "failed"): 1}


def test_it_is_over_when_as_many_have_come_and_may_be_raised_again():  # R15
    watch = Watch()
    watch.run(False, False, False, True, True, False, True, True)
    assert watch.told == [("raised", "failed")]
    watch.run(True)
    assert watch.told == [("raised", "failed"), ("over", "failed")]
    assert len(watch.alarms) == 0
    watch.run(False, False, False)
    assert watch.told[2:] == [("raised", "failed")]
    assert watch.alarms.raised.total() == 2


def test_a_share_below_what_is_promised_is_an_alarm_though_nothing_fails_in_a_row():  # R15
    watch = Watch(sla=0.99)
    watch.run(*[True] * 98, False)
    assert watch.told == []  # too few to tell
    watch.run(False)
    assert watch.told == [("raised", "share")]
    watch.run(*[True] * 99)
    assert watch.told == [("raised", "share")]
    watch.run(*[True])
    assert watch.told == [("raised", "share"), ("over", "share")]


def test_a_link_that_is_no_more_has_no_alarms():
    watch = Watch()
    watch.run(*[False] * 110)
    assert watch.alarms.causes(LINK) == ("failed", "share")
    with capture_logs() as lines:
        watch.alarms.drop(LINK, watch.stats)
    assert watch.told[2:] == [("over", "failed"), ("over", "share")]
    # It was never well.
    assert [notice.gone for notice in watch.notices] == [False, False, True, True]
    assert [line["reason"] for line in lines] == ["the link is gone"] * 2
    assert not any("failed_in_a_row" in line for line in lines)
    assert watch.alarms.causes(LINK) == ()


def test_an_alarm_is_a_line_of_the_log_and_an_event():
    watch = Watch()
    with capture_logs() as lines:
        watch.run(False, False, False, True, True, True)
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("rooms.alarm", "warning"),
        ("rooms.alarm_over", "info"),
    ]
    assert lines[0]["tail"] == "proxy px"
    assert lines[0]["head"] == "broker bk"
    columns = {"came_from": "px", "role": "proxy", "peer": "bk", "peer_role": "broker"}
    assert watch.recorder.told == [
        ("room_alarm", columns | {"n": 3, "reason": "failed"}),
        ("room_alarm", columns | {"n": 0, "reason": "failed_over"}),
    ]


def test_a_notice_says_which_link_and_has_an_id_of_its_own():
    watch = Watch()
    watch.run(False, False, False, True, True, True)
    raised = msgspec.json.decode(msgspec.json.encode(watch.notices[0]))
    assert raised == {
        "event": "room_alarm",
        "id": "gw-1794774463244-1",
        "node": "gw",
        "at": 1_794_774_463_244,
        "state": "raised",
        "cause": "failed",
        "tail": {"role": "proxy", "node": "px", "id": 3},
        "head": {"role": "broker", "node": "bk", "id": 4, "partition": 1},
        "failed_in_a_row": 3,
        "share": 0.0,
        "gone": False,
    }
    assert watch.notices[1].id != raised["id"]


@pytest.mark.parametrize("failures", [1, 10])
def test_how_many_failures_it_takes_is_an_option(failures):
    watch = Watch(alarm_failures=failures)
    watch.run(*[False] * (failures - 1))
    assert watch.told == []
    watch.run(False)
    assert watch.told == [("raised", "failed")]
