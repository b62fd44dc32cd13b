"""What the mesh has met, for `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from chappe.cluster.link import Link

# Causes that mean: somebody connected who could not prove to be a node of this cluster.
AUTH_CAUSES = frozenset({"garbage", "reflection", "secret", "version", "name"})
_LOG_INTERVAL_S = 1.0
# Each is a time series to whoever collects them.
_LABELS_MAX = 32


class MeshCounters:
    """Counts of links and handshakes; every label is one of few words."""

    def __init__(self, time: Callable[[], float]) -> None:
        # Links that came up, and links that went down, by reason.
        self.opened = 0
        self.resets: Counter[str] = Counter()
        # Handshakes that failed, by cause.
        self.refused: Counter[str] = Counter()
        # Of links that are gone; those that are up count for themselves.
        self.bytes_in = self.bytes_out = self.frames_in = self.frames_out = self.duplicates = 0
        self._time = time
        self._log_at = 0.0

    @property
    def handshakes(self) -> int:
        """How many handshakes there were, whatever became of them."""
        return self.opened + self.refused.total()

    @property
    def auth_failures(self) -> int:
        """How many could not prove to be a node of this cluster."""
        return sum(self.refused[cause] for cause in AUTH_CAUSES)

    def came_up(self) -> None:
        """A link is up."""
        self.opened += 1

    def went_down(self, link: Link, reason: str) -> None:
        """A link that was up is gone."""
        label = reason.partition(":")[0]
        if label not in self.resets and len(self.resets) >= _LABELS_MAX:
            label = "other"
        self.resets[label] += 1
        self.bytes_in += link.bytes_in
        self.bytes_out += link.bytes_out
        self.frames_in += link.frames_in
        self.frames_out += link.frames_out
        self.duplicates += link.duplicates

    def failed(self, cause: str) -> bool:
        """A handshake failed; returns whether to log it: strangers must not fill the log."""
        self.refused[cause] += 1
        now = self._time()
        if now < self._log_at:
            return False
        self._log_at = now + _LOG_INTERVAL_S
        return True
