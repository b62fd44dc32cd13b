"""What several routes take from a request's query, and the pages that lists are given in."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Annotated, TypeVar

from fastapi import Query

PAGE_MAX = 1000
As = Annotated[str, Query(alias="as")]
Start = Annotated[int, Query(ge=0, le=10_000_000)]
# What is above the node's own bound is refused by it.
Who = Annotated[int, Query(ge=0, le=2**31)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]

T = TypeVar("T")


def cut_page(items: Iterable[T], start: int, limit: int) -> tuple[list[T], int | None]:
    """The items of a page, and where the next one starts, if there may be one."""
    page = list(islice(items, start, start + limit))
    return page, start + limit if len(page) == limit else None
