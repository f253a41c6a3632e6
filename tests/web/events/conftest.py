"""A listener with a key that may follow events, and clients that follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.web.events.follower import WATCH, Follower
from zonemta_py.disk import identity
from zonemta_py.web.keys import hashed


@pytest.fixture
def door(open_http: Callable[..., Any]) -> Any:
    keys = [
        {"name": "watch", "hash": hashed(WATCH), "rights": ["events"]},
        {"name": "shop", "hash": hashed("zmta_shop")},
    ]
    found = open_http(http={"keys": keys})
    assert identity.copied(found.folder, "") == ""
    return found


@pytest.fixture
def follow(door: Any) -> Iterator[Callable[..., Follower]]:
    made: list[Follower] = []

    def start(key: str = WATCH, **more: Any) -> Follower:
        made.append(Follower(f"http://127.0.0.1:{door.port}/v1/events", key, **more))
        made[-1].answered()
        return made[-1]

    yield start
    for one in made:
        one.hang_up()
