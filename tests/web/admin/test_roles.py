"""Every role and every right at every operation: what the document says is so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.admin.requests import OPERATIONS, Operation, ask, status
from tests.web.conftest import HttpDoor
from zonemta_py.plugin.host import Host
from zonemta_py.web.keys import OF_ROLE, RIGHTS, ROLES, hashed

KEYS = [
    *({"name": f"role-{one}", "hash": hashed(f"role {one}"), "role": one} for one in ROLES),
    *({"name": f"right-{one}", "hash": hashed(one), "rights": [one]} for one in RIGHTS),
]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    found = HttpDoor(tmp_path_factory.mktemp("queue"), Host.empty(), {"http": {"keys": KEYS}})
    yield found
    found.stop()


def test_every_operation_says_who_may() -> None:
    """A role or a right, or nothing at all for what is open."""
    known = {*RIGHTS, *(f"role {one}" for one in ROLES)}
    for one in OPERATIONS:
        assert set(one.needs) <= known, one.id
    assert [one.path for one in OPERATIONS if not one.needs] == ["/v1/ready", "/v1/health"]


def may(one: Operation, key: dict[str, Any]) -> bool:
    role = key.get("role")
    rights = {*key.get("rights", ()), *(OF_ROLE[role] if role else ())}
    roles = {f"role {one}" for one in ROLES[: ROLES.index(role) + 1]} if role else set()
    return not one.needs or not rights.union(roles).isdisjoint(one.needs)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: str(key["name"]))
def test_a_key_may_what_the_document_says(door: HttpDoor, key: dict[str, Any]) -> None:
    """Each operation is tried; who may not is told 403, and who may is told something else, which is no failure."""
    shown = f"role {key['role']}" if "role" in key else key["rights"][0]
    with door.client_with(shown) as client:
        for one in OPERATIONS:
            found = status(client, one)
            assert found < 500, one.id
            assert (found == 403) == (not may(one, key)), (one.id, found)


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: str(one.id))
def test_without_a_key_nothing_is_told(door: HttpDoor, one: Operation) -> None:
    """But for what is open."""
    with door.client_with("") as client:
        found, text = ask(client, one)
        assert (found == 401) == bool(one.needs), text


def test_metrics_are_for_those_who_read(door: HttpDoor) -> None:
    """They are not in the document, which is about JSON."""
    for key in KEYS:
        role = key.get("role")
        rights = {*key.get("rights", ()), *(OF_ROLE[role] if role else ())}
        shown = f"role {role}" if role else key["rights"][0]
        with door.client_with(str(shown)) as client:
            allowed = not rights.isdisjoint(("metrics", "read"))
            assert client.get("/metrics").status_code == (200 if allowed else 403), key
