"""What was heard of people, and what a guard holds back, on the pages of the dashboard and over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import HttpDoor
from tests.web.dashboard.test_access import csrf, login
from zonemta_py.plugin.host import Host
from zonemta_py.queue.suppression.policy import Statement
from zonemta_py.web.keys import hashed


@pytest.fixture
def door(tmp_path: Path) -> Any:
    keys = [{"name": "chief", "hash": hashed("zmta_chief"), "role": "admin"},
            {"name": "acme", "hash": hashed("zmta_acme"), "tenants": ["acme"], "rights": ["suppressions"]}]  # fmt: skip
    made = HttpDoor(tmp_path, Host.empty(), {"http": {"dashboard": True, "keys": keys}})
    yield made
    made.stop()


def hear(door: HttpDoor, *people: str, tenant: str = "", agreed: bool = True) -> None:
    async def heard() -> None:
        queue = door.queue
        for address in people:
            said = Statement(
                address, "user-unknown", f"of {address}", queue.core.clock.steady_ms(), agreed, tenant,
                pair=("", "p.test"), said="550 5.1.1 <nobody> here",
            )  # fmt: skip
            queue.core.disk.lines.submit(queue.policy.heard(said), lambda _: None, sync=False, keep=True)
        for _ in range(4):
            await queue.core.disk.lines.stable()
            await queue.core.disk.journal.stable()

    asyncio.run_coroutine_threadsafe(heard(), door.loop).result(20)


def test_a_guard_is_shown_and_ended(door: HttpDoor) -> None:
    """On the first page, among suppressions, and at each person; an operator decides there what it means."""
    people = [f"p{number}@x.test" for number in range(20)]
    hear(door, *people)
    client, _ = login(door, "zmta_chief")
    assert "people new to us do not exist there" in client.get("/dashboard").text
    page = client.get("/dashboard/suppressions").text
    assert "p.test: 20 people new to us" in page
    page = client.get("/dashboard/suppressions", params={"address": people[0]}).text
    assert "550 5.1.1 &lt;nobody&gt; here" in page
    assert "Refusals by p.test are held back" in page
    assert [row["people"] for row in door.client.get("/v1/guards").json()] == [20]
    asked = client.get("/dashboard/order/guard-drop", params={"name": "p.test"}).text
    assert "the provider was faulty" in asked
    done = client.post("/dashboard/order/guard-release", data={"name": "p.test", "csrf": csrf(client)})
    assert done.status_code in (200, 303)
    assert door.client.get("/v1/guards").json() == []


def test_a_key_with_a_tenant_sees_that_tenants_evidence(door: HttpDoor) -> None:
    hear(door, "ann@x.test", tenant="acme", agreed=False)
    hear(door, "bob@x.test", tenant="other", agreed=False)
    acme = door.client_with("zmta_acme")
    heard = {who: acme.get(f"/v1/suppressions/{who}/evidence").json()["heard"] for who in ("ann@x.test", "bob@x.test")}
    assert (len(heard["ann@x.test"]), heard["bob@x.test"]) == (1, [])
    whole = door.client.get("/v1/suppressions/bob@x.test/evidence").json()
    assert whole["standing"][0]["said"].startswith("the address does not exist: 1 refusal within 30 days; enough would")


def test_a_domain_and_a_pattern_on_the_page(door: HttpDoor) -> None:
    """Entered there as on the command line, shown at whom they cover, and what is wrong is said."""
    client, _ = login(door, "zmta_chief")
    for entry in ("@gone.test", "bot*@*"):
        done = client.post("/dashboard/order/suppress", data={"address": entry, "kind": "manual", "csrf": csrf(client)})
        assert done.status_code in (200, 303)
    page = client.get("/dashboard/suppressions").text
    assert "@gone.test" in page
    assert "pattern:bot*@*" in page
    assert "@gone.test" in client.get("/dashboard/suppressions", params={"address": "a@gone.test"}).text
    assert "pattern:bot*@*" in client.get("/dashboard/suppressions", params={"address": "bot*@*"}).text
    wrong = client.post(
        "/dashboard/order/suppress", data={"address": "gone.test", "kind": "manual", "csrf": csrf(client)}
    )
    assert "write @gone.test for all of a domain" in wrong.text
    data = {"address": "pattern:bot*@*", "scope": "all", "csrf": csrf(client)}
    assert client.post("/dashboard/order/unsuppress", data=data).status_code in (200, 303)
    assert "pattern:bot*@*" not in client.get("/dashboard/suppressions", params={"address": "bot1@x.test"}).text
