"""The crew of `chappe rooms up`: who it has, what each is told, who comes and goes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from chappe.cluster.options import ClusterOptions
from chappe.errors import ClusterError, ConfigError
from chappe.node.child import Child, Cord, Report
from chappe.node.gathering import SOCKET as COUNTS
from chappe.node.layout import Layout
from chappe.node.options import NodeOptions
from chappe.node.post import Post
from chappe.node.roomscrew import RoomsCrew, Siblings
from chappe.node.roomswatch import NUMBERS, Numbers, settle, stand
from chappe.registry.memory import MemoryRegistry
from chappe.rooms.lookout import Lookout
from chappe.rooms.options import RoomsOptions
from chappe.rooms.paths import paths_of
from tests.loop import on_loop
from tests.node.running import options_of

SIMPLE = ["router-1", "broker-0-1", "broker-0-2", "broker-0-3"]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def prepared(stack: ExitStack, options: NodeOptions, layout: Layout | None = None) -> RoomsCrew:
    crew = RoomsCrew(options, layout or Layout())
    crew.prepare(stack)
    return crew


def watched(crew: RoomsCrew, stack: ExitStack, partitions: int, **figures: int) -> list[str]:
    """Let the watch say something; the names of who is to leave."""
    (watch,) = crew.stages[1]
    ours, theirs = socket.socketpair()
    stack.enter_context(ours)
    stack.enter_context(theirs)
    watch.child = Child(0, ours, 0.0)
    told = {"partitions": partitions, "wanted": partitions} | figures
    watch.child.report = Report(figures=told)
    return names(crew.heard(watch))


def names(posts: list[Post]) -> list[str]:
    return [post.name for post in posts]


def told(post: Post) -> NodeOptions:
    """What the child of a place is told."""
    assert isinstance(post.life, partial)
    options = post.life.keywords["options"]
    assert isinstance(options, NodeOptions)
    return options


def test_the_simple_layout_is_what_starts_if_nothing_is_said(
    tmp_path: Path, stack: ExitStack
) -> None:  # R16
    crew = prepared(stack, options_of(tmp_path))
    assert not watched(crew, stack, partitions=1)
    assert [names(stage) for stage in crew.stages] == [
        ["keeper"],
        ["watch"],
        SIMPLE,
        ["proxy-1"],
        ["gateway-1"],
    ]
    assert Layout().processes == 6


def test_each_process_has_the_one_role_it_is_named_after(tmp_path: Path, stack: ExitStack) -> None:
    layout = Layout(partitions=2, replicas=1, gateways=2)
    crew = prepared(stack, options_of(tmp_path), layout)
    watched(crew, stack, partitions=2)
    members = [told(post) for stage in crew.stages[2:] for post in stage]
    roles = {options.name: (options.roles, options.rooms.partition) for options in members}
    assert roles == {
        "router-1": (("router",), None),
        "broker-0-1": (("broker",), 0),
        "broker-1-1": (("broker",), 1),
        "proxy-1": (("proxy",), None),
        "gateway-1": (("hub", "gateway"), None),
        "gateway-2": (("hub", "gateway"), None),
    }
    ports = [options.port for options in members if options.has_hub]
    assert len(set(ports)) == 2
    assert 0 not in ports
    assert len({options.data for options in members}) == len(members)
    # Whoever reads what they recorded reads it in one place.
    assert {options.events.folder for options in members} == {str(tmp_path / "data" / "events")}


def test_brokers_of_new_partitions_come_and_go_with_what_is_wanted(
    tmp_path: Path, stack: ExitStack
) -> None:  # R9
    crew = prepared(stack, options_of(tmp_path))
    watched(crew, stack, partitions=1)
    assert not watched(crew, stack, partitions=1, wanted=2)
    new = ["broker-1-1", "broker-1-2", "broker-1-3"]
    assert names(crew.stages[2]) == SIMPLE + new
    assert watched(crew, stack, partitions=1) == new
    assert names(crew.stages[2]) == SIMPLE
    watched(crew, stack, partitions=1, wanted=2)
    watched(crew, stack, partitions=2)
    assert names(crew.stages[2]) == SIMPLE + new
    # A registry that was restarted empty knows of one partition, for a moment.
    assert not watched(crew, stack, partitions=1)
    assert names(crew.stages[2]) == SIMPLE + new


def test_independent_routers_have_partitions_and_double_too(
    tmp_path: Path, stack: ExitStack
) -> None:  # R12
    layout = Layout(replicas=1, router_partitions=2, routers=2)
    crew = prepared(stack, options_of(tmp_path), layout)
    watched(crew, stack, partitions=1, router_partitions=2, router_wanted=2)
    routers = [f"router-{partition}-{n}" for partition in (0, 1) for n in (1, 2)]
    assert names(crew.stages[2]) == ["broker-0-1", *routers]
    everybody = [told(post) for stage in crew.stages[2:] for post in stage]
    assert all(options.rooms.independent_routers for options in everybody)
    watched(crew, stack, partitions=1, router_partitions=2, router_wanted=4)
    assert len(crew.stages[2]) == 1 + 8


def test_with_a_registry_of_others_names_and_ports_are_of_this_machine(
    tmp_path: Path, stack: ExitStack
) -> None:
    cluster = ClusterOptions(secret="file", port=0)
    rooms = RoomsOptions(port=7600)
    changes: dict[str, Any] = {"registry": "redis://there", "store": "redis://there"}
    options = options_of(tmp_path, cluster=cluster, rooms=rooms, name="box", **changes)
    crew = prepared(stack, options, Layout(replicas=1))
    watched(crew, stack, partitions=2)
    assert not crew.stages[0]
    members = [told(post) for stage in crew.stages[2:] for post in stage]
    assert {options.name for options in members} == {
        f"box-{name}" for name in ("router-1", "broker-0-1", "broker-1-1", "proxy-1", "gateway-1")
    }
    assert sorted(options.rooms.port or 0 for options in members) == list(range(7600, 7605))


def test_with_a_registry_of_its_own_ports_follow_the_first_as_well(
    tmp_path: Path, stack: ExitStack
) -> None:
    for port, ports in ((7600, [7600, 7601, 7602, 7603]), (0, [0] * 4)):
        folder = tmp_path / str(port)
        folder.mkdir()
        options = options_of(folder, rooms=RoomsOptions(port=port))
        crew = prepared(stack, options, Layout(replicas=1))
        watched(crew, stack, partitions=1)
        members = [told(post) for stage in crew.stages[2:] for post in stage]
        assert sorted(options.rooms.port or 0 for options in members) == ports


@pytest.mark.parametrize(
    ("layout", "named"),
    [
        ({"partitions": 3}, "--partitions: must be a power of two"),
        ({"partitions": 0}, "--partitions"),
        ({"router_partitions": 6}, "--router-partitions"),
        ({"replicas": 0}, "--replicas: must be at least 1"),
        ({"gateways": -1}, "--gateways"),
        ({"partitions": 128}, "387 processes on one machine"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(layout: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Layout(**layout)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"roles": ("hub",)}, "roles"),
        ({"workers": 2}, "workers"),
        ({"rooms": RoomsOptions(partition=0)}, "rooms.partition"),
    ],
)
def test_what_each_process_is_given_cannot_be_given_to_all(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        RoomsCrew(options_of(tmp_path, **changes), Layout())


def test_whoever_came_later_tells_its_counts_too(tmp_path: Path) -> None:
    siblings = Siblings(tmp_path, "gateway-1")
    assert list(siblings) == ["gateway-1"]
    (tmp_path / "broker-1-1").mkdir()
    (tmp_path / "broker-1-1" / COUNTS).touch()
    assert dict(siblings) == {name: tmp_path / name for name in ("broker-1-1", "gateway-1")}


def test_a_child_may_tell_what_it_found_again_and_again() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child, cord = Child(0, ours, 0.0), Cord(theirs)
        for partitions in (1, 2):
            cord.tell(Report(figures={"partitions": partitions}))
        for partitions in (1, 2):
            assert child.hear()
            assert child.report == Report(figures={"partitions": partitions})


@on_loop
async def test_what_a_registry_says_of_partitions_is_not_overruled() -> None:  # R9
    coordination = MemoryRegistry().open("up").coordinate("a test")
    paths = paths_of(RoomsOptions()).brokers
    await settle(coordination, paths, 2, "--partitions")
    await settle(coordination, paths, 1, "--partitions")
    found = await coordination.get(paths.number)
    assert found is not None
    assert found.value == b"2"
    with pytest.raises(ConfigError, match="--partitions: there are 2 by the registry"):
        await settle(coordination, paths, 4, "--partitions")
    await coordination.close()


@on_loop
async def test_a_watch_that_watches_something_no_more_ends_with_the_reason() -> None:
    async def mistaken(found: Any) -> None:
        raise RuntimeError("a mistake")

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    coordination = MemoryRegistry().open("watch").coordination
    assert coordination is not None
    lookout = Lookout(
        coordination,
        paths_of(RoomsOptions()),
        independent=False,
        lease_s=5.0,
        changed=lambda roll: None,
    )
    lookout.start()
    stop = asyncio.Event()
    standing = asyncio.create_task(stand(lookout, stop))
    lookout._watches.value("/odd", mistaken)
    with pytest.raises(ClusterError, match="watching /odd has ended"):
        async with asyncio.timeout(10):
            await standing
    await lookout.stop()
    # Who is told to stop has watched to the end.
    stop.set()
    await stand(lookout, stop)
    await coordination.close()


def test_how_many_partitions_there_were_is_remembered(tmp_path: Path) -> None:  # R9
    file = tmp_path / NUMBERS
    numbers = Numbers(file)
    assert numbers.recall("/a", 2) == 2
    numbers.note("/a", 4)
    numbers.note("/b", 1)
    numbers.note("/a", 2)  # a registry that came back empty
    again = Numbers(file)
    with capture_logs() as lines:
        assert again.recall("/a", 2) == 4
    assert [(line["event"], line["asked"], line["remembered"]) for line in lines] == [
        ("rooms.partitions.remembered", 2, 4)
    ]
    assert again.recall("/a", 8) == 8
    assert again.recall("/b", 2) == 2


@pytest.mark.parametrize("text", ["", "4", '{"/a": "x"}', '{"/a": 3}', '{"/a": 1048576}'])
def test_a_number_that_cannot_be_is_not_remembered(tmp_path: Path, text: str) -> None:
    (tmp_path / NUMBERS).write_text(text)
    assert Numbers(tmp_path / NUMBERS).recall("/a", 2) == 2
