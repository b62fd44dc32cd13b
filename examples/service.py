"""A service: two providers share the requests, a client asks and sees only the service.

python examples/service.py [ws://127.0.0.1:7400/ws]
"""

import asyncio
import sys

from chappe import BadRequest, connect

SERVICE = "service:temperature"


async def to_celsius(data: object) -> dict[str, float]:
    if not isinstance(data, int | float):
        raise BadRequest("data: a number is meant")
    await asyncio.sleep(0.01)  # as if it asked a database
    return {"celsius": round((data - 32) * 5 / 9, 1)}


async def main(url: str) -> None:
    async with (
        connect(url, as_="user:provider-1") as first,
        connect(url, as_="user:provider-2") as second,
        connect(url, as_="user:alice") as alice,
    ):
        await first.provide(SERVICE, to_celsius)
        await second.provide(SERVICE, to_celsius, concurrency=4)
        degrees = (32, 98.6, 212)
        # An idempotent request goes to another provider if its first one dies.
        answers = await asyncio.gather(
            *(alice.request(SERVICE, n, timeout_s=5, idempotent=True) for n in degrees)
        )
        for n, answer in zip(degrees, answers, strict=True):
            print(f"{n} F is {answer['celsius']} C")
        try:
            await alice.request(SERVICE, "warm")
        except BadRequest as error:
            print(f"refused: {error.reason}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:7400/ws"))
