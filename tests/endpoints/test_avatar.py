"""Avatars: who makes and removes them, whose they are, and what is sent to them (H14, H15)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.endpoints.avatar import Avatars
from chappe.endpoints.directory import Directory
from chappe.endpoints.record import Record
from chappe.errors import ErrorCode
from chappe.hub.grant import EVERYTHING, NOTHING, Grant, Scope
from chappe.ids import Snowflake
from chappe.store.memory import MemoryStore
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.ops import PACKED, Avatar, Hello, Reply, Subscribe
from tests.hub.rig import Endpoint, Rig, publish, send
from tests.loop import on_loop

MANAGE = {"user:manager": EVERYTHING, "user:support": Scope(["avatar:support-*"])}


class Passport:
    """Lets anybody in; two of them manage avatars."""

    def authenticate(self, hello: Hello) -> Grant:
        return Grant(
            app=hello.app or "shop",
            address=hello.as_,
            send=EVERYTHING,
            publish=EVERYTHING,
            subscribe=EVERYTHING,
            manage=MANAGE.get(hello.as_, NOTHING),
        )


class Scene:
    """A hub with a manager on it."""

    def __init__(self, encoding: Encoding = STREAM) -> None:
        self.rig = Rig(authenticator=Passport())
        self.encoding = encoding
        self.avatars: Avatars = self.rig.application.avatars
        self.directory: Directory = self.rig.application.directory

    def user(self, name: str, app: str | None = None) -> Endpoint:
        return self.rig.endpoint(name, self.encoding, app=app)

    async def ask(self, who: Endpoint, do: str, avatar: str, user: str = "") -> Reply:
        kind: Any = PACKED[Avatar] if self.encoding is STREAM else Avatar
        who.say(kind(id=7, do=do, avatar=avatar, user=user))
        await self.rig.tick()
        return who.reply()

    async def add(self, avatar: str, user: str, app: str | None = None) -> None:
        assert (await self.ask(self.user("manager", app), "add", avatar, user)).ok


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS], ids=["packed", "json"])
@on_loop
async def test_a_manager_gives_an_avatar_and_what_is_sent_to_it_reaches_the_user(
    encoding: Encoding,
):
    scene = Scene(encoding)
    bob, alice = scene.user("bob"), scene.user("alice")
    await scene.add("avatar:x", "user:bob")
    await scene.add("avatar:y", "user:bob")  # a user has many
    assert scene.avatars.user_of("shop", "avatar:x") == "user:bob"
    assert scene.avatars.avatars_of("shop", "user:bob") == ["avatar:x", "avatar:y"]
    alice.say(send("avatar:x", "hello", id=1))
    await scene.rig.tick()
    assert alice.reply().ok
    assert bob.got() == ["hello"]


@on_loop
async def test_a_send_to_a_user_and_its_avatars_reaches_it_once():
    scene = Scene()
    bob, eve, alice = scene.user("bob"), scene.user("eve"), scene.user("alice")
    for avatar, user in (("avatar:x", "bob"), ("avatar:y", "bob"), ("avatar:e", "eve")):
        await scene.add(avatar, f"user:{user}")
    addressed = ["avatar:y", "user:bob", "avatar:e", "avatar:x", "avatar:nobody's", "user:eve"]
    alice.say(send(addressed, "once", id=1))
    await scene.rig.tick()
    assert bob.got() == ["once"]
    assert eve.got() == ["once"]
    assert alice.reply().verdicts == {
        to: "unreachable" if to == "avatar:nobody's" else "ok" for to in addressed
    }
    reduced = scene.avatars.reduce("shop", addressed)
    assert reduced == ["user:bob", "user:eve", "avatar:nobody's"]
    assert scene.avatars.reduce("other", addressed) == addressed


@on_loop
async def test_a_user_that_subscribed_as_itself_and_its_avatars_gets_a_publish_once():
    scene = Scene()
    bob, alice = scene.user("bob"), scene.user("alice")
    await scene.add("avatar:x", "user:bob")
    bob.say(Subscribe(id=1, to="topic:news"), Subscribe(id=2, to="topic:news", as_="avatar:x"))
    alice.say(publish("topic:news", "once"))
    await scene.rig.tick()
    assert bob.got() == ["once"]


@pytest.mark.parametrize(
    ("who", "do", "avatar", "user", "error", "said"),
    [
        ("bob", "add", "avatar:new", "user:bob", "forbidden", "does not manage avatar:new"),
        ("support", "add", "avatar:sales-1", "user:bob", "forbidden", "does not manage"),
        ("manager", "add", "avatar:x", "user:eve", "forbidden", "belongs to another user"),
        ("manager", "add", "avatar:new", "avatar:x", "protocol", "an avatar has no avatars"),
        ("manager", "add", "avatar:new", "topic:t", "protocol", "user: a topic has no avatars"),
        ("manager", "add", "avatar:new", "", "protocol", "user: "),
        ("manager", "add", "avatar:new", "user:", "protocol", "user: "),
        ("manager", "add", "avatar:*", "user:bob", "protocol", "avatar: "),
        ("manager", "add", "user:new", "user:bob", "protocol", "avatar: "),
        ("manager", "add", "", "user:bob", "protocol", "avatar: "),
        ("manager", "steal", "avatar:x", "user:bob", "protocol", "do: "),
        ("manager", "", "avatar:x", "user:bob", "protocol", "do: "),
        ("eve", "remove", "avatar:x", "", "forbidden", "neither manages nor has"),
        ("eve", "remove", "avatar:x", "user:bob", "forbidden", "neither manages nor has"),
        ("eve", "remove", "avatar:none", "", "forbidden", "neither manages nor has"),
        ("support", "remove", "avatar:x", "", "forbidden", "neither manages nor has"),
        ("manager", "remove", "avatar:x", "user:eve", "forbidden", "belongs to another user"),
        ("manager", "remove", "user:bob", "", "protocol", "avatar: "),
    ],
)
@on_loop
async def test_what_may_not_be_is_refused_with_a_reason_and_changes_nothing(
    who: str, do: str, avatar: str, user: str, error: str, said: str
):
    scene = Scene()
    await scene.add("avatar:x", "user:bob")
    before = list(scene.directory.snapshot())
    reply = await scene.ask(scene.user(who), do, avatar, user)
    assert (reply.ok, reply.error) == (False, error)
    assert reply.reason is not None
    assert said in reply.reason
    assert list(scene.directory.snapshot()) == before


@pytest.mark.parametrize("who", ["manager", "bob"])
@on_loop
async def test_an_avatar_is_removed_by_a_manager_or_its_user_and_is_free_again(who: str):
    scene = Scene()
    gone: list[tuple[str, str, str]] = []
    scene.avatars.on_removed = lambda *lost: gone.append(lost)
    alice, bob = scene.user("alice"), scene.user("bob")
    await scene.add("avatar:x", "user:bob")
    assert (await scene.ask(scene.user(who), "remove", "avatar:x", "user:bob")).ok
    assert gone == [("shop", "user:bob", "avatar:x")]
    assert scene.avatars.user_of("shop", "avatar:x") is None
    assert scene.avatars.avatars_of("shop", "user:bob") == []
    alice.say(send("avatar:x", "anybody?", id=1))
    await scene.rig.tick()
    assert alice.reply().error == ErrorCode.UNREACHABLE
    assert bob.got() == []
    await scene.add("avatar:x", "user:eve")
    assert scene.avatars.user_of("shop", "avatar:x") == "user:eve"


@on_loop
async def test_a_manager_may_repeat_what_it_is_not_sure_of():
    scene = Scene()
    manager = scene.user("manager")
    for do in ("add", "add", "remove", "remove"):
        assert (await scene.ask(manager, do, "avatar:x", "user:bob")).ok


@on_loop
async def test_a_manager_of_some_avatars_manages_those():
    scene = Scene()
    support = scene.user("support")
    assert (await scene.ask(support, "add", "avatar:support-3", "user:bob")).ok
    assert (await scene.ask(support, "remove", "avatar:support-3")).ok


@on_loop
async def test_an_avatar_of_one_app_is_unknown_in_another():
    scene = Scene()
    await scene.add("avatar:x", "user:bob", app="shop")
    assert scene.avatars.user_of("other", "avatar:x") is None
    await scene.add("avatar:x", "user:eve", app="other")
    assert scene.avatars.user_of("shop", "avatar:x") == "user:bob"
    assert (await scene.ask(scene.user("bob", "shop"), "remove", "avatar:x")).ok
    assert scene.avatars.user_of("other", "avatar:x") == "user:eve"


@on_loop
async def test_a_user_has_a_bounded_number_of_avatars():
    scene = Scene()
    bounded = Avatars(scene.rig.hub, scene.directory, avatars_max=2)
    scene.rig.hub.serve(bounded.handlers())
    await scene.add("avatar:1", "user:bob")
    await scene.add("avatar:2", "user:bob")
    reply = await scene.ask(scene.user("manager"), "add", "avatar:3", "user:bob")
    assert reply.error == ErrorCode.OVERLOAD
    await scene.add("avatar:3", "user:eve")
    await scene.add("avatar:2", "user:bob")  # it has that one already


@on_loop
async def test_without_an_id_nobody_is_answered():
    scene = Scene()
    manager = scene.user("manager")
    manager.say(Avatar(do="add", avatar="avatar:x", user="user:bob"))
    manager.say(Avatar(do="add", avatar="avatar:x", user="user:eve"))
    await scene.rig.tick()
    assert manager.heard() == []
    assert scene.avatars.user_of("shop", "avatar:x") == "user:bob"


@on_loop
async def test_every_node_knows_what_was_made_on_one():
    here, there = Scene(), Scene()
    here.directory.on_change = lambda record: there.directory.merge([record])
    gone: list[tuple[str, str, str]] = []
    there.avatars.on_removed = lambda *lost: gone.append(lost)
    await here.add("avatar:x", "user:bob")
    assert there.avatars.user_of("shop", "avatar:x") == "user:bob"
    # On two nodes at once, for two users: the one whose record stands has it, and it alone.
    stands = Record("shop", "avatar:x", 2**62, b"\xa8user:eve")
    for scene in (here, there):
        scene.directory.merge([stands])
        assert scene.avatars.user_of("shop", "avatar:x") == "user:eve"
        assert scene.avatars.avatars_of("shop", "user:bob") == []
        assert scene.avatars.avatars_of("shop", "user:eve") == ["avatar:x"]
    assert gone == [("shop", "user:bob", "avatar:x")]
    await here.ask(here.user("manager"), "remove", "avatar:x")
    assert there.avatars.user_of("shop", "avatar:x") is None


@on_loop
async def test_a_node_that_starts_knows_the_avatars_in_its_store():
    scene = Scene()
    store = MemoryStore()
    clock = scene.rig.clock

    def directory() -> Directory:
        return Directory(ids=Snowflake(1, clock.wall_ms), clock=clock, store=store)

    first = directory()
    first.put("shop", "avatar:x", b"\xa8user:bob")
    first.put("shop", "avatar:odd", b"\x07")  # of a release that writes it in another way
    await first.close()
    second = directory()
    avatars = Avatars(scene.rig.hub, second)
    await second.load()
    assert avatars.user_of("shop", "avatar:x") == "user:bob"
    assert avatars.user_of("shop", "avatar:odd") is None
    await second.close()
