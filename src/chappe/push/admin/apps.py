"""Apps: made, changed and removed by administrators; looked up by everybody (P10)."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable

import msgspec

from chappe.address import check_app
from chappe.clock import Clock
from chappe.errors import BadRequest, Forbidden, Unreachable
from chappe.push.app import Limits, PushApp
from chappe.push.seal import Seal
from chappe.push.state.meta import MetaState

_KEY_BYTES = 10
_SECRET_BYTES = 32
_CACHED_S = 1.0
# Strangers may ask for keys that nobody has.
_CACHED_MAX = 10_000


class Apps:
    """The apps of a deployment. What one process changes, others know a second later."""

    def __init__(
        self, meta: MetaState, seal: Seal, clock: Clock, entropy: Callable[[int], bytes]
    ) -> None:
        self._meta = meta
        self._seal = seal
        self._clock = clock
        self._entropy = entropy
        self._cached: dict[str, tuple[float, PushApp | None]] = {}

    async def create(self, name: str, *, open: bool, limits: Limits) -> tuple[PushApp, str]:
        """A new app, and its secret, which is never shown again; raises BadRequest."""
        key, secret = self._entropy(_KEY_BYTES).hex(), self._make_secret()
        app = PushApp(
            key=key,
            name=check_app(name),
            open=open,
            sealed_secret=self._seal.close(secret.encode(), _label(key)),
            created_ms=self._clock.wall_ms(),
            limits=check_limits(limits),
        )
        if not await self._meta.put_app(app, new=True):
            raise BadRequest(f"name: there is an app called {name} already")
        self._cached.pop(key, None)
        return app, secret

    async def find(self, key: str) -> PushApp:
        """An app, as it was a second ago at the most; raises Unreachable."""
        now = self._clock.monotonic()
        until, app = self._cached.get(key, (0.0, None))
        if until <= now:
            app = (await self._meta.apps([key])).get(key)
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[key] = (now + _CACHED_S, app)
        if app is None:
            raise Unreachable("app: no app has this key")
        return app

    async def usable(self, key: str) -> PushApp:
        """An app that is not switched off; raises Unreachable or Forbidden."""
        app = await self.find(key)
        if not app.enabled:
            raise Forbidden("app: it is switched off")
        return app

    async def named(self, name: str) -> PushApp | None:
        """The app of a name."""
        return await self._meta.app_named(name)

    async def page(self, after: str, limit: int) -> list[PushApp]:
        """Apps by key, from the one after that."""
        return await self._meta.list_apps(after, limit)

    async def change(
        self,
        key: str,
        *,
        open: bool | None = None,
        enabled: bool | None = None,
        limits: Limits | None = None,
    ) -> PushApp:
        """Change what is given; raises Unreachable or BadRequest."""
        app = await self._fresh(key)
        changed = msgspec.structs.replace(
            app,
            open=app.open if open is None else open,
            enabled=app.enabled if enabled is None else enabled,
            limits=app.limits if limits is None else check_limits(limits),
        )
        return await self._write(changed)

    async def rotate(self, key: str) -> str:
        """A new secret in place of the old one; raises Unreachable."""
        app, secret = await self._fresh(key), self._make_secret()
        sealed = self._seal.close(secret.encode(), _label(key))
        await self._write(msgspec.structs.replace(app, sealed_secret=sealed))
        return secret

    async def remove(self, key: str) -> None:
        """Forget an app: its devices log in no more, its notes expire; raises Unreachable."""
        self._cached.pop(key, None)
        if not await self._meta.remove_app(key):
            raise Unreachable("app: no app has this key")

    def secret_of(self, app: PushApp) -> str:
        """What the app's servers sign with; raises StorageError."""
        return self._seal.open(app.sealed_secret, _label(app.key)).decode()

    async def _fresh(self, key: str) -> PushApp:
        self._cached.pop(key, None)
        return await self.find(key)

    async def _write(self, app: PushApp) -> PushApp:
        await self._meta.put_app(app, new=False)
        # Not before: somebody may have asked meanwhile.
        self._cached.pop(app.key, None)
        return app

    def _make_secret(self) -> str:
        return urlsafe_b64encode(self._entropy(_SECRET_BYTES)).rstrip(b"=").decode()


def check_limits(limits: Limits) -> Limits:
    """Raise BadRequest for a limit that is below nothing."""
    for name in limits.__struct_fields__:
        if getattr(limits, name) < 0:
            raise BadRequest(f"limits.{name}: 0 (no limit) or above")
    return limits


def _label(key: str) -> str:
    return f"the secret of app {key}"
