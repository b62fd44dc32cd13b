"""Handlers by path and type (K7)."""

from __future__ import annotations

import pytest

from chappe.errors import ConfigError
from chappe.keys.routes import Routes


def handler(name: str) -> object:
    def take() -> str:
        return name

    return take


def names(found: list[object]) -> list[str]:
    return [one() for one in found]


@pytest.fixture
def routes() -> Routes:
    routes = Routes()
    for path, kind in (("*", "*"), ("/a", "x"), ("/a", "*"), ("*", "x"), ("/b", "x"), ("/a/", "x")):
        routes.add_text(path, kind, handler(f"{path} {kind}"))
    return routes


def test_every_handler_that_matches_is_called_in_the_order_they_were_given(routes: Routes):
    assert names(routes.of_text("/a", "x")) == ["* *", "/a x", "/a *", "* x", "/a/ x"]
    assert names(routes.of_text("/a", "y")) == ["* *", "/a *"]
    assert names(routes.of_text("/b", "x")) == ["* *", "* x", "/b x"]
    assert names(routes.of_text("/c", "z")) == ["* *"]


def test_a_type_that_is_called_like_any_calls_nobody_twice(routes: Routes):
    assert names(routes.of_text("/a", "*")) == ["* *", "/a *"]


def test_binary_and_plain_text_have_handlers_of_their_own():
    routes = Routes()
    routes.add_binary("/up", handler("up"))
    routes.add_binary("*", handler("any"))
    routes.add_plain("/chat", handler("chat"))
    assert names(routes.of_binary("/up")) == ["up", "any"]
    assert names(routes.of_binary("/down")) == ["any"]
    assert names(routes.of_plain("/chat")) == ["chat"]
    assert routes.of_plain("/up") == routes.of_text("/up", "x") == []


def test_a_path_is_there_when_somebody_takes_something_on_it():
    routes = Routes()
    routes.add_plain("/chat", handler("chat"))
    assert routes.has("/chat")
    assert not routes.has("/")
    routes.add_binary("*", handler("any"))
    assert routes.has("/")


@pytest.mark.parametrize("path", ["orders", "", "/a*", "/a/{id}", handler])
def test_what_is_no_path_is_refused(path: str):
    with pytest.raises(ConfigError, match="path: "):
        Routes().add_text(path, "*", handler(""))


def test_a_type_may_not_be_empty():
    with pytest.raises(ConfigError, match="type: "):
        Routes().add_text("/a", "", handler(""))
