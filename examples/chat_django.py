"""A chat in Django, in the manner of consumers: who connects is in a room, and hears what is said.

BUS=redis://127.0.0.1:6379 uvicorn examples.chat_django:application --port 8001
BUS=redis://127.0.0.1:6379 uvicorn examples.chat_django:application --port 8002

python -m websockets 'ws://127.0.0.1:8001/ws/chat?room=tea&name=ada'       # and type something
curl http://127.0.0.1:8002/announce/tea -d 'the kettle is on'
"""

import os
import secrets

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import JsonResponse
from django.urls import path

import chappe

settings.configure(
    # From the environment, so that replicas share it; nobody can know one that is made up here.
    SECRET_KEY=os.environ.get("SECRET_KEY") or secrets.token_urlsafe(50),
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
)
hub = chappe.Hub(bus=os.environ["BUS"])


def room_of(session):
    return f"key:room-{session.query['room']}"


@hub.on_handshake
def enter(handshake):
    if not (handshake.query.get("room") and handshake.query.get("name")):
        raise chappe.Forbidden("room, name: say where, and who you are")


@hub.on_connect
async def connect(session):
    await hub.subscribe(session, room_of(session))
    await hub.send(room_of(session), session.query["name"], type="came")


@hub.on_disconnect
async def disconnect(session):
    await hub.send(room_of(session), session.query["name"], type="left")


@hub.text("/chat", type="say")
async def say(session, message):
    said = {"name": session.query["name"], "text": message.data}
    await hub.send(room_of(session), said, type="said")


@hub.plaintext("/chat")
def say_plainly(session, text):  # no coroutine: it runs in a thread, and may use Django's models
    said = {"name": session.query["name"], "text": text}
    hub.blocking.send(room_of(session), said, type="said")


@hub.binary("/chat")
async def show(session, picture):
    await hub.send(room_of(session), picture)


def announce(request, room):
    text = request.body.decode(errors="replace")
    return JsonResponse({"reached": hub.blocking.send(f"key:room-{room}", text, type="notice")})


async def close(request, room):
    return JsonResponse({"closed": await hub.close(f"key:room-{room}", reason="the room closes")})


urlpatterns = [path("announce/<slug:room>", announce), path("close/<slug:room>", close)]
application = hub.asgi(get_asgi_application(), path="/ws")
