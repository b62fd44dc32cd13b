"""A web application with a hub in it, as somebody would write one: run by uvicorn, in replicas."""

from __future__ import annotations

import os
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import chappe
from tests.keys.rig import obedient

OPTIONS = msgspec.json.decode(os.environ.get("KEYS", "{}"), type=chappe.KeysOptions)
hub = obedient(chappe.Hub(os.environ["BUS"], keys=OPTIONS))
app = FastAPI(lifespan=hub.lifespan)
app.mount("/ws", hub.asgi())


@app.post("/send/{key}")
async def send(key: str, body: Request) -> Any:
    if body.headers.get("content-type") == "application/octet-stream":
        return {"reached": await hub.send(f"key:{key}", await body.body())}
    return {"reached": await hub.send(f"key:{key}", await body.json())}


@app.get("/counts")
async def counts() -> Any:
    return {"name": hub.name, **hub.counts()}


@app.exception_handler(chappe.BusAway)
async def away(request: Request, error: chappe.BusAway) -> JSONResponse:
    told = {"reached": error.reached, "reason": error.reason, "unknown": error.outcome_unknown}
    return JSONResponse(told, status_code=503)
