"""`scripts/customer_day.py` against a whole MTA: its domain, sources that are lost, and nothing of it for others."""

from __future__ import annotations

import re
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from customer_day import Api, day
from ports import free_port
from survival.rig import Mta

from tests.cli.test_doctor import Records
from tests.real import test_domains, test_lost_source
from tests.real.conftest import sink_in_a_thread
from zonemta_py.sink import Sink
from zonemta_py.web import keys

pytestmark = pytest.mark.skipif(shutil.which("microsocks") is None, reason="apt-get install microsocks")
BACKUP = "192.0.2.4"
"""Whose proxy is that of the pool `backup`."""


class Day:
    """The world."""

    def __init__(self, rig: test_domains.Rig, proxies: test_lost_source.Proxies, links: int) -> None:
        self._rig, self.proxies, self._links = rig, proxies, links

    def publish(self, records: list[dict[str, Any]]) -> None:
        self._rig.publish({"records": records})

    def lose_a_source(self) -> None:
        self.proxies.end("192.0.2.1")

    def _body(self, recipient: str) -> bytes:
        return next(one.body for one in self._rig.sink.messages if recipient in one.recipients)

    def message_id(self, recipient: str) -> str:
        return str(message_from_bytes(self._body(recipient))["Message-ID"])

    def click(self, recipient: str) -> None:
        """As a mailbox provider does."""
        found = re.search(rb"<https://news\.cust\.test(/mail/[^>]+)>", self._body(recipient).replace(b"\r\n ", b""))
        assert found is not None, self._body(recipient)
        url = f"http://127.0.0.1:{self._links}{found[1].decode()}"
        request = urllib.request.Request(url, b"List-Unsubscribe=One-Click", {"Host": "news.cust.test"})
        with urllib.request.urlopen(request) as response:
            assert response.status == 200

    def sent_by(self, recipient: str) -> str:
        client = next(one.client for one in self._rig.sink.messages if recipient in one.recipients)
        return next(address for address, seen in self.proxies.seen.items() if seen == client)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Day, dict[str, Api], Sink]]:
    named = {name: keys.new_key() for name in ("operator", "acme", "other")}
    ports = {name: free_port() for name in ("http", "back", "links")}
    proxies = test_lost_source.Proxies()
    with sink_in_a_thread("rcpt:/^gone/ 550 5.1.1 nobody here") as sink, Records() as dns:
        threading.Thread(target=dns.serve_forever, daemon=True).start()
        more = test_domains.MORE.format(
            **ports, dns=dns.server_address[1], **{name: keys.hashed(key) for name, key in named.items()}
        )
        rights = 'role = "read"\nrights = ["inject", "domains", "campaigns", "suppressions", "feedback"]'
        more = more.replace('rights = ["inject", "domains"]', rights)
        more += test_lost_source.MORE.format(sink=sink.port) + "".join(
            ('[[pools]]\nname = "backup"\n' if address == BACKUP else "")
            + f'[[pools.sources]]\naddress = "{address}"\nproxy = "socks5://127.0.0.1:{port}"\n'
            for address, port in proxies.ports.items()
        )
        mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more, server="sender_domains = true", retry_min=60)
        try:
            for address in proxies.ports:
                proxies.start(address)
            mta.start()
            rig = test_domains.Rig(mta, sink, dns, ports["http"], ports["back"], named)
            test_domains.ready(rig)
            url = f"http://127.0.0.1:{ports['http']}"
            yield Day(rig, proxies, ports["links"]), {name: Api(url, key) for name, key in named.items()}, sink
        finally:
            mta.end()
            proxies.close()
            dns.shutdown()


def test_a_customers_day(world: tuple[Day, dict[str, Api], Sink]) -> None:
    one, apis, sink = world
    found = day(apis["acme"], apis["operator"], apis["other"], one)
    assert found["domain"]["signs"]
    assert (found["domain"]["uses_return_path"], found["domain"]["uses_link"]) == (True, True)
    assert found["listed"] == {"r7@pool.test": "complaint", "r8@pool.test": "unsubscribe"}  # one refusal is not enough
    assert found["numbers"]["bounced"] == 1
    assert not re.search("cust|pool|spring|acme", str(found["others"]))
    assert one.sent_by("late@pool.test") == BACKUP
    assert BACKUP not in {one.sent_by(f"r{number}@pool.test") for number in range(60)}
    people = [who for each in sink.messages for who in each.recipients]
    assert len(people) == len(set(people)) == 61
    after = [
        each for each in sink.messages if not {"r0@pool.test", "r1@pool.test", "r2@pool.test"} & {*each.recipients}
    ]
    assert all(each.sender.endswith("@bounces.cust.test") for each in after)  # a domain holds within a second


def test_the_day_is_short() -> None:
    """What a program has to say for all that."""
    text = Path(__file__).parents[2].joinpath("scripts", "customer_day.py").read_text()
    assert len(text[text.index("\ndef day(") : text.index("\ndef until(")].strip().splitlines()) <= 60
