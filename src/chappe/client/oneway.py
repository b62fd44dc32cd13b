"""A one-way producer: sends without an answer (Q2)."""

from __future__ import annotations

from typing import Any

from chappe.client.outlet import Outlet


class OneWayProducer(Outlet):
    """Sends messages and does not hear whether they are stored; nothing is sent twice.

    async with client.one_way_producer("queue:clicks") as producer:
        await producer.send({"page": "/"})
    """

    async def send(
        self,
        data: Any,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        tags: list[str] | None = None,
        num: int | None = None,
        consumers: list[str] | None = None,
    ) -> None:
        """Send a message; waits only while more is to be written than may.

        What was written when a connection is lost, or is refused by the broker, is lost.
        """
        labels = {
            "key": key,
            "headers": headers,
            "tags": tags,
            "num": num,
            "consumers": consumers,
        }
        await self._post.send_one_way(*self._prepare(data, labels))
