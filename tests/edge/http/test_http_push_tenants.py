"""Two apps with the same names for everything never see anything of each other.

Each app does things in any order, the other one in between. Then each does the same again, alone,
as an app that was just made. If its answers are the same both times, all that the other did was
nothing to it. Some of what it does is with ids and tokens of the other: alone, these are ids that
nobody ever had, and the answers have to be the same, too.
"""

from __future__ import annotations

import asyncio
import os
import re
from itertools import count

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from chappe.push.app import Limits
from chappe.wire.pushlink import Close, Subscribed, Withdraw
from tests.edge.http.signing import Signer
from tests.push.desks import make_bench

EXAMPLES = 500 if os.environ.get("CHAPPE_PROOF") == "full" else 30
IDS = re.compile(r"\b[cpmj][0-9a-z]{2}[0-9a-f]{13}\b")
# Ids that nobody ever had.
NOBODYS = {"c": "c{}ffffffff", "n": "p{}ffffffff", "j": "j{}ffffffff", "t": "T{}" + "T" * 34}
NAMES = st.sampled_from(["x", "y"])
# Whose id is used: an own one, or one of the other app; and which.
WHICH = st.tuples(st.sampled_from(["own", "own", "others"]), st.integers(0, 3))
_numbers = count()

ACTIONS = st.one_of(
    st.tuples(st.just("token"), NAMES),
    st.tuples(st.just("device"), NAMES),
    st.tuples(st.just("connect"), WHICH),
    st.tuples(st.just("bind"), NAMES, NAMES),
    st.tuples(st.just("bind_client"), NAMES, WHICH),
    st.tuples(st.just("unbind"), WHICH),
    st.tuples(st.just("subscribe"), NAMES, NAMES),
    st.tuples(st.just("subscribe_client"), NAMES, WHICH),
    st.tuples(st.just("unsubscribe_client"), NAMES, WHICH),
    st.tuples(st.just("send"), st.sampled_from(["device", "user", "topic"]), NAMES),
    st.tuples(st.just("send_client"), WHICH),
    st.tuples(st.just("send_many"), WHICH, WHICH),
    st.tuples(st.just("send_keyed"), NAMES),
    st.tuples(st.just("cancel"), WHICH),
    st.tuples(st.just("cancel_job"), WHICH),
    st.tuples(st.just("replace"), WHICH),
    st.tuples(st.just("job"), WHICH),
    st.tuples(st.just("jobs"), WHICH),
    # Who has a device's token is that device.
    st.tuples(st.just("click"), WHICH, st.tuples(st.just("own"), st.integers(0, 3)), WHICH),
    st.tuples(st.just("attack"), st.integers(0, 1)),
    st.tuples(st.just("revoke"), WHICH),
    st.tuples(st.just("revoke_client"), WHICH),
    st.tuples(st.just("remove"), WHICH),
    st.tuples(st.just("look"), WHICH),
    st.tuples(st.just("list"), st.just("")),
)


class Tenant:
    """An app that does things, and remembers the ids that it was given."""

    def __init__(self, client, bench, app, secret) -> None:
        self.client, self.bench, self.app = client, bench, app
        self.signer = Signer(app.key, secret, bench.clock)
        self.other: Tenant | None = None
        self.ids: dict[str, list[str]] = {"c": [], "n": [], "j": [], "t": []}
        self.answers: list[tuple[int, str]] = []
        self.texts: list[str] = []

    def pick(self, kind, which):
        whose, number = which
        holder = self if whose == "own" else self.other
        if holder is not None and len(holder.ids[kind]) > number:
            return holder.ids[kind][number]
        return NOBODYS[kind].format(f"{'zz' if whose == 'own' else 'zy'}{number:05}")

    async def act(self, action, *arguments):
        for method, path, body in getattr(self, f"_{action}")(*arguments):
            auth = None if path in ("/devices", "/clicks") else self.signer
            answer = await self.client.request(method, f"/v1/push{path}", json=body, auth=auth)
            self._learn(path, answer)

    async def connect(self, which):
        """A device connects, which HTTP has no part in."""
        if which[0] == "own" and len(self.ids["c"]) > which[1]:
            client = self.ids["c"][which[1]]
            await self.bench.states.route.move({client: 1})
            self.bench.comets.here[1].add(client)

    def normal(self):
        """The answers, with ids and tokens numbered as they come."""
        seen: dict[str, str] = {}

        def number(found):
            return seen.setdefault(found.group(), f"#{len(seen)}")

        secret = re.compile("|".join(map(re.escape, self.ids["t"])) or "$^")
        return [
            (status, secret.sub(number, IDS.sub(number, text))) for status, text in self.answers
        ]

    def _learn(self, path, answer):
        told = answer.json()
        # Which comet it is depends on the client's id.
        told.pop("comet", None)
        self.texts.append(answer.text)
        self.answers.append((answer.status_code, repr((path.partition("?")[0][:6], told))))
        if answer.status_code != 200:
            return
        if "token" in told:
            self.ids["t"].append(told["token"])
            self._keep("c", told["client"])
        if path == "/send" or path.endswith("/replace"):
            self._keep("j", told["job"])
            self._keep("n", told["note"])

    def _keep(self, kind, id_):
        if id_ not in self.ids[kind]:
            self.ids[kind].append(id_)

    def _token(self, device):
        yield "POST", "/tokens", {"device": device}

    def _device(self, device):
        yield "POST", "/devices", {"app": self.app.key, "device": device}

    def _bind(self, user, device):
        yield "POST", "/users/bind", {"user": user, "device": device}

    def _bind_client(self, user, which):
        yield "POST", "/users/bind", {"user": user, "client": self.pick("c", which)}

    def _unbind(self, which):
        yield "POST", "/users/unbind", {"client": self.pick("c", which)}

    def _subscribe(self, topic, device):
        yield "POST", "/topics/subscribe", {"topics": [topic], "device": device}

    def _subscribe_client(self, topic, which):
        body = {"topics": [topic], "client": self.pick("c", which)}
        yield "POST", "/topics/subscribe", body

    def _unsubscribe_client(self, topic, which):
        body = {"topics": [topic], "client": self.pick("c", which)}
        yield "POST", "/topics/unsubscribe", body

    def _send(self, aim, name):
        yield "POST", "/send", {aim: name, "data": name, "name": "job", "collapse": "c"}

    def _send_client(self, which):
        yield "POST", "/send", {"client": self.pick("c", which), "data": 1}

    def _send_many(self, first, second):
        clients = [self.pick("c", first), self.pick("c", second)]
        yield "POST", "/send", {"client": clients, "user": ["x", "y"], "data": 1}

    def _send_keyed(self, device):
        yield "POST", "/send", {"device": device, "data": 1, "idempotency_key": f"key {device}"}

    def _cancel(self, which):
        yield "POST", f"/notes/{self.pick('n', which)}/cancel", None

    def _cancel_job(self, which):
        yield "POST", f"/jobs/{self.pick('j', which)}/cancel", None

    def _replace(self, which):
        yield "POST", f"/notes/{self.pick('n', which)}/replace", {"data": 2}

    def _job(self, which):
        yield "GET", f"/jobs/{self.pick('j', which)}", None

    def _jobs(self, which):
        yield "GET", f"/jobs?before={self.pick('j', which)}", None

    def _click(self, client, token, sent):
        click = {"job": self.pick("j", sent), "note": self.pick("n", sent)}
        body = {"client": self.pick("c", client), "token": self.pick("t", token)}
        yield "POST", "/clicks", body | {"clicks": [click]}

    def _revoke(self, which):
        yield "POST", "/tokens/revoke", {"token": self.pick("t", which)}

    def _revoke_client(self, which):
        yield "POST", "/tokens/revoke", {"client": self.pick("c", which)}

    def _remove(self, which):
        yield "DELETE", f"/clients?client={self.pick('c', which)}", None

    def _look(self, which):
        yield "GET", f"/clients?client={self.pick('c', which)}", None

    def _attack(self, number):
        """All at once that one can try with what is the other's."""
        own, others = ("own", number), ("others", number)
        yield from self._click(own, own, others)
        yield from self._click(others, own, others)
        for act in (self._revoke, self._send_client, self._job, self._jobs, self._cancel_job):
            yield from act(others)
        for act in (self._replace, self._cancel, self._look, self._unbind, self._revoke_client):
            yield from act(others)
        for act in (self._bind_client, self._subscribe_client, self._unsubscribe_client):
            yield from act("x", others)
        yield from self._send_many(own, others)
        yield from self._remove(others)

    def _list(self, _):
        yield "GET", "/jobs", None
        yield "GET", "/topics", None
        for name in ("x", "y"):
            yield "GET", f"/users?user={name}", None
            yield "GET", f"/topics/{name}/clients", None
            yield "GET", f"/clients?device={name}", None


class Stage:
    """The edge, and tenants on it."""

    def __init__(self, client, bench) -> None:
        self.client, self.bench = client, bench

    async def tenant(self):
        name = f"tenant-{next(_numbers)}"
        app, secret = await self.bench.desk.apps.create(
            name, open=True, limits=Limits(sends_per_s=0)
        )
        return Tenant(self.client, self.bench, app, secret)

    async def perform(self, script, tenants):
        """Let those tenants that are there do their part."""
        for number, (action, *arguments) in script:
            tenant = tenants.get(number)
            if tenant is None:
                continue
            if action == "connect":
                await tenant.connect(*arguments)
            else:
                await tenant.act(action, *arguments)
        for tenant in tenants.values():
            await tenant.act("list", "")

    async def check(self, script):
        self.bench.comets.told.clear()
        self.bench.comets.delivered.clear()
        together = {0: await self.tenant(), 1: await self.tenant()}
        together[0].other, together[1].other = together[1], together[0]
        await self.perform(script, together)
        self._check_comets(together)
        for number, tenant in together.items():
            alone = await self.tenant()
            await self.perform(script, {number: alone})
            assert tenant.normal() == alone.normal()
            others = [id_ for kind in together[1 - number].ids.values() for id_ in kind]
            for text in tenant.texts:
                # It may name an id of the other's in its own request, and hear of it as missing.
                assert not any(id_ in text for id_ in others if id_ not in _missing(text))

    def _check_comets(self, tenants):
        owners = {
            id_: tenant.app.key
            for tenant in tenants.values()
            for kind in "cn"
            for id_ in tenant.ids[kind]
        }
        for _, note, _, clients in self.bench.comets.delivered:
            assert {owners[client] for client in clients} == {owners[note]}
        for _, op in self.bench.comets.told:
            if isinstance(op, Withdraw):
                assert owners[op.note] == op.app
            elif isinstance(op, Subscribed):
                assert owners[op.client] == op.app
            else:
                assert isinstance(op, Close)


def _missing(text):
    found = re.search(r'"missing":(\{[^}]*\})', text)
    return found.group(1) if found else ""


@pytest.fixture
def stage(serve):
    """A loop with an edge in it, to run one example after the other in."""
    with asyncio.Runner() as runner:

        async def opening():
            bench = await make_bench()
            serving = serve(push=bench.desk)
            service = await serving.__aenter__()
            client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.port}", timeout=20)
            return bench, serving, Stage(client, bench)

        bench, serving, stage = runner.run(opening())
        yield lambda script: runner.run(stage.check(script))

        async def closing():
            await stage.client.aclose()
            await serving.__aexit__(None, None, None)
            await bench.states.close()

        runner.run(closing())


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    # What fails is not made smaller: each try is hundreds of requests.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(script=st.lists(st.tuples(st.integers(0, 1), ACTIONS), max_size=40))
def test_two_apps_with_the_same_names_are_nothing_to_each_other(stage, script):  # P10
    # Something is there from the begin, or most of what follows would be about nobody.
    begin = [(n, ("device", name)) for n in (0, 1) for name in ("x", "y")]
    begin += [(n, ("bind", "x", "y")) for n in (0, 1)]
    begin += [(n, ("subscribe", "x", "x")) for n in (0, 1)]
    begin += [(n, ("send", "device", "x")) for n in (0, 1)]
    attack = [(n, ("attack", 0)) for n in (0, 1)]
    stage(begin + attack + script)
