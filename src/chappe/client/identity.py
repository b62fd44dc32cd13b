"""Who a client is to its hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

Token = str | Callable[[], str | Awaitable[str]] | None


class Identity:
    """Who a client says it is, with a token that may be made anew for each hello."""

    __slots__ = ("app", "as_", "token")

    def __init__(self, as_: str, token: Token, app: str | None) -> None:
        self.as_ = as_
        self.token = token
        self.app = app

    @property
    def renewable(self) -> bool:
        """Whether a fresh token can be had."""
        return callable(self.token)

    async def fresh_token(self) -> str | None:
        """The token for the next hello."""
        if not callable(self.token):
            return self.token
        token = self.token()
        return await token if isawaitable(token) else token
