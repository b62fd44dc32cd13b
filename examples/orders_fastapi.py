"""Orders: a shop with several replicas tells each browser tab of the orders that it watches.

BUS=redis://127.0.0.1:6379 uvicorn examples.orders_fastapi:app --port 8001
BUS=redis://127.0.0.1:6379 uvicorn examples.orders_fastapi:app --port 8002

Watch order 7 at http://127.0.0.1:8001, and let the other replica tell of it:

curl http://127.0.0.1:8002/orders/7 --json '{"state": "packed"}'
"""

import os

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

import chappe

hub = chappe.Hub(bus=os.environ["BUS"])  # redis://...
app = FastAPI(lifespan=hub.lifespan)
app.mount("/ws", hub.asgi())


@hub.text("/orders", type="watch")  # ws://.../ws/orders
async def watch(session, message):
    await hub.subscribe(session, message.key)
    await session.send("from now on", type="watching", key=message.key)


@hub.text("/orders", type="leave")
async def leave(session, message):
    await hub.unsubscribe(session, message.key)


@app.post("/orders/{key}")
async def changed(key: str, body: dict):
    return {"reached": await hub.send(f"key:{key}", body)}


@app.delete("/orders/{key}")
async def done(key: str):
    return {"closed": await hub.close(f"key:{key}", reason="the order is done")}


PAGE = """<!doctype html>
<title>Orders</title>
<form>Order <input id="key" value="7"> <button>watch</button></form>
<pre id="log"></pre>
<script>
const show = (text) => document.getElementById("log").append(text + "\\n");
const scheme = location.protocol === "https:" ? "wss" : "ws";
const ws = new WebSocket(`${scheme}://${location.host}/ws/orders`);
ws.onmessage = (event) => show(event.data);
ws.onclose = (event) => show(`closed: ${event.code} ${event.reason}`);
document.forms[0].onsubmit = (event) => {
  event.preventDefault();
  ws.send(JSON.stringify({type: "watch", key: document.getElementById("key").value}));
};
</script>
"""


@app.get("/", response_class=HTMLResponse)
async def page():
    return PAGE
