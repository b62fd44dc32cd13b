"""Scripts: what Redis does in one step, whole or not at all."""

from __future__ import annotations

from hashlib import sha1


class Script:
    """A script, and the name that Redis knows it by once it has seen it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
