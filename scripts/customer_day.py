"""A customer's whole day by the HTTP interface alone: a domain, a campaign with metadata and a canary, what comes back.

`Api` is all that a program needs to speak it; `day` is the day. What the world does meanwhile (DNS, receivers, people,
a source that is lost) is `World`, which `tests/real/test_customer_day.py` has.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any, NamedTuple, Protocol


class World(Protocol):
    def publish(self, records: list[dict[str, Any]]) -> None: ...
    def lose_a_source(self) -> None: ...
    def click(self, recipient: str) -> None: ...
    def message_id(self, recipient: str) -> str: ...


class Api(NamedTuple):
    url: str
    key: str

    def __call__(self, method: str, path: str, body: Any = None, name: str = "") -> Any:
        """The answer; {} where there is no such thing. name: makes a repeated request harmless."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}/v1{path}", data, headers | ({"Idempotency-Key": name} if name else {}), method=method
        )
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise RuntimeError(f"{method} {path}: {json.load(error)['detail']}") from None


def day(acme: Api, operator: Api, other: Api, world: World) -> dict[str, Any]:
    """The day's numbers, and what another customer sees of it."""
    domain = acme("PUT", "/domains/cust.test", {"link": "news.cust.test"})
    world.publish(domain["records"])
    domain = acme("POST", "/domains/cust.test/check")
    template = {"from": "The Shop <news@cust.test>", "subject": "Hello {{ name }}", "text": "Dear {{ name }}, hello.\n"}
    acme("PUT", "/campaigns/spring", {"sender": "news@cust.test", "zone": "pooled", "template": template})
    people = [[f"r{number}@pool.test", f"N{number}", f"order {number}"] for number in range(60)]
    batch = {"campaign": "spring", "columns": ["name", "meta_order"]}
    acme("POST", "/inject", batch | {"recipients": people[:3]}, "canary")
    until(acme, delivered=3)
    acme("POST", "/inject", batch | {"recipients": [*people[3:30], ["gone@pool.test", "G", "none"]]}, "first half")
    world.lose_a_source()
    acme("POST", "/inject", batch | {"recipients": people[30:]}, "second half")
    until(acme, delivered=60, bounced=1)
    complaint = {"kind": "complaint", "recipient": "r7@pool.test", "message_id": world.message_id("r7@pool.test")}
    acme("POST", "/feedback", {"rows": [complaint]})
    world.click("r8@pool.test")
    operator("POST", "/reroutes", {"zone": "pooled", "to": "pool backup", "seconds": 600, "cause": "a trial"})
    acme("POST", "/inject", batch | {"recipients": [["late@pool.test", "L", "late"], *people[7:9]]}, "late")
    numbers = until(acme, delivered=61, complaints=1, unsubscribes=1)
    operator("DELETE", "/reroutes?zone=pooled")
    places = "/domains", "/campaigns", "/campaigns/spring", "/suppressions", "/feedback", "/recipients"
    seen = [other("GET", path) for path in places]
    listed = {row["address"]: row["kind"] for row in acme("GET", "/suppressions")["rows"]}
    return {
        "domain": domain,
        "numbers": numbers,
        "listed": listed,
        "others": seen,
    }


def until(api: Api, **wanted: int) -> dict[str, Any]:
    """The campaign, once it has these numbers."""
    end = time.monotonic() + 60
    while any((found := api("GET", "/campaigns/spring"))[name] != number for name, number in wanted.items()):
        if time.monotonic() > end:
            raise RuntimeError(f"it never was {wanted}: {found}")
        time.sleep(0.1)
    return dict(found)
