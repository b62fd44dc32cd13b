"""The hook of alarms: whoever watches the rooms of a cluster is told of links that fail (R15).

As with hooks of apps, notices are signed POSTs, tried again for a while; when too many wait the
oldest is dropped. They go one after the other, so that nothing is over before it began. They are
counted beside those of apps.
"""

from __future__ import annotations

from random import Random

import msgspec

from chappe.clock import Clock
from chappe.endpoints.hook import Line
from chappe.endpoints.options import HookOptions
from chappe.errors import ConfigError
from chappe.events.recorder import Recorder
from chappe.rooms.alarm import Notice
from chappe.rooms.options import ProbeOptions
from chappe.wire.rooms import PSEUDO_APP

# All links of a large layout, failing at once.
_WAITING_MAX = 10_000


class AlarmHook:
    """Tells of alarms. Made on the running loop; raises ConfigError."""

    def __init__(
        self, options: ProbeOptions, *, clock: Clock, rng: Random, recorder: Recorder
    ) -> None:
        try:
            hook = HookOptions(
                url=options.webhook,
                secret_file=options.webhook_secret_file,
                allow_plaintext=options.webhook_plaintext,
                waiting_max=_WAITING_MAX,
                concurrency_max=1,
            )
            self._line = Line(PSEUDO_APP, hook, clock, rng, recorder)
        except ConfigError as error:
            raise ConfigError(f"rooms.probe.webhook: {error}") from None

    def tell(self, notice: Notice) -> None:
        """Let them know, soon."""
        self._line.put(msgspec.json.encode(notice))

    async def close(self) -> None:
        """Stop at once; what waits is dropped and counted."""
        await self._line.close()
