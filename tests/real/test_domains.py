"""Sender domains in a whole MTA: made by HTTP, used once DNS has their records, kept over kills, each tenant's own."""

from __future__ import annotations

import asyncio
import json
import re
import smtplib
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dkim
import pytest
from ports import free_port
from survival.rig import Mta

from tests.cli.test_doctor import Records
from tests.real.conftest import sink_in_a_thread
from zonemta_py.disk import domain_book
from zonemta_py.sink import Sink
from zonemta_py.sink.record import ReceivedMessage
from zonemta_py.web import keys

PATIENCE_S = 60
MORE = """
[[listeners]]
name = "back"
port = {back}
feedback = true
relay_networks = []
[http]
enabled = true
port = {http}
[[http.keys]]
name = "operator"
hash = "{operator}"
role = "admin"
[[http.keys]]
name = "acme"
hash = "{acme}"
rights = ["inject", "domains"]
tenants = ["acme"]
[[http.keys]]
name = "other"
hash = "{other}"
rights = ["inject", "domains"]
tenants = ["other"]
[links]
enabled = true
port = {links}
url = "https://links.mta.test/mail"
secrets = ["0123456789abcdef0123"]
[return_path]
verp = "back.mta.test"
secret = "0123456789abcdef0123"
[dns]
servers = ["127.0.0.1"]
port = {dns}
timeout_s = 3
"""


class Rig:
    def __init__(self, mta: Mta, sink: Sink, dns: Records, http: int, back: int, keys_: dict[str, str]) -> None:
        self.mta, self.sink, self.dns, self.http, self.back, self.keys = mta, sink, dns, http, back, keys_
        self.sent = 0

    def ask(self, method: str, path: str, body: Any = None, key: str = "operator", status: int = 200) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self.keys[key]}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.http}/v1{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as response:
                found = response.status, json.load(response)
        except urllib.error.HTTPError as error:
            found = error.code, json.load(error)
        assert found[0] == status, found
        return found[1]

    def send(self, sender: str = "ann@cust.test", key: str = "acme") -> ReceivedMessage:
        """What comes of it at the receiver."""
        self.sent += 1
        who = f"r{self.sent}@there.test"
        mail = {
            "from": sender,
            "to": [who],
            "subject": "hello",
            "text": "Good morning.\n",
            "headers": {"X-Unsubscribe": "yes"},
        }
        self.ask("POST", "/inject", mail, key)
        self.until(lambda: any(who in one.recipients for one in self.sink.messages))
        return next(one for one in self.sink.messages if who in one.recipients)

    def until(self, what: Callable[[], Any]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < end, self.mta.log_tail()
            time.sleep(0.05)

    def publish(self, row: dict[str, Any]) -> None:
        """All that is asked for."""
        for one in row["records"]:
            if one["type"] == "TXT":
                value = one["value"]
                text = " ".join(f'"{value[at : at + 200]}"' for at in range(0, len(value), 200))
                self.dns.all[one["name"], "TXT"] = [text]
            elif one["type"] == "MX":
                self.dns.all[one["name"], "MX"] = [f"{one['value']}."]
            else:
                self.dns.all[one["name"], "A"] = ["192.0.2.9"]
        self.dns.all |= {("links.mta.test", "A"): ["192.0.2.9"], ("mta.test", "A"): ["192.0.2.8"]}

    def is_signed(self, one: ReceivedMessage) -> bool:
        """By a key whose record is in DNS."""
        texts = {f"{name}.": "".join(re.findall('"([^"]*)"', value[0])).encode()
                 for (name, kind), value in self.dns.all.items() if kind == "TXT"}  # fmt: skip
        return b"DKIM-Signature" in one.body and dkim.verify(
            one.body, dnsfunc=lambda name, **_: texts.get(name.decode())
        )


def ready(rig: Rig) -> None:
    """Once clients are answered."""
    asyncio.run(rig.mta.taking())


@pytest.fixture(params=[1, 2])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    named = {name: keys.new_key() for name in ("operator", "acme", "other")}
    ports = {name: free_port() for name in ("http", "back", "links")}
    with sink_in_a_thread() as sink, Records() as dns:
        threading.Thread(target=dns.serve_forever, daemon=True).start()
        more = MORE.format(
            **ports, dns=dns.server_address[1], **{name: keys.hashed(key) for name, key in named.items()}
        )
        mta = Mta(
            tmp_path / "queue", sink.port, home=tmp_path, more=more, server="sender_domains = true",
            queues=request.param,
        )  # fmt: skip
        try:
            mta.start()
            asyncio.run(mta.taking())
            yield Rig(mta, sink, dns, ports["http"], ports["back"], named)
        finally:
            mta.end()
            dns.shutdown()


def test_a_customers_domain(rig: Rig) -> None:
    row = rig.ask("PUT", "/domains/cust.test", {"link": "news.cust.test"}, "acme")
    assert (row["tenant"], row["return_path"], row["signs"]) == ("acme", "bounces.cust.test", False)
    assert {one["status"] for one in row["records"]} == {"unasked"}
    assert "private" not in json.dumps(row).lower()

    first = rig.send()
    assert b"DKIM-Signature" not in first.body
    assert first.sender.endswith("@back.mta.test")
    assert b"https://links.mta.test/mail/" in first.body
    row = rig.ask("POST", "/domains/cust.test/check", key="acme")
    assert {one["status"] for one in row["records"]} == {"missing"}

    rig.publish(row)
    row = rig.ask("POST", "/domains/cust.test/check", key="acme")
    assert {one["status"] for one in row["records"]} == {"ok"}
    assert (row["signs"], row["uses_return_path"], row["uses_link"]) == (True, True, True)
    time.sleep(1)  # a change holds within a second, in each sender
    mail = rig.send()
    assert rig.is_signed(mail)
    assert mail.sender.endswith("@bounces.cust.test")
    assert b"https://news.cust.test/mail/" in mail.body
    below = rig.send("ann@mail.cust.test")
    assert rig.is_signed(below)
    assert below.sender.endswith("@bounces.cust.test")

    # Another tenant's mail has nothing of it, whatever it says.
    foreign = rig.send(key="other")
    assert b"DKIM-Signature" not in foreign.body
    assert foreign.sender.endswith("@back.mta.test")
    assert b"news.cust.test" not in foreign.body
    rig.ask("GET", "/domains/cust.test", key="other", status=404)
    rig.ask("PUT", "/domains/cust.test", {"tenant": "other"}, "other", 409)
    rig.ask("DELETE", "/domains/cust.test", key="other", status=409)
    assert rig.ask("GET", "/domains", key="other")["rows"] == []

    # Nor does what another tenant makes below it change anything.
    rig.ask("PUT", "/domains/mail.cust.test", {}, "other")
    time.sleep(1)
    assert rig.is_signed(rig.send("ann@mail.cust.test"))

    # What DNS said of another name says nothing of the one that it has now.
    row = rig.ask("PUT", "/domains/cust.test", {"return_path": "back.cust.test"}, "acme")
    said = {"return_path": ["ok", ""], "spf": ["ok", ""]}
    stale = rig.mta.ask("domain-looked", name="cust.test", found=said, changed_ms=row["changed_ms"] - 1)
    assert not stale["uses_return_path"]
    rig.ask("PUT", "/domains/cust.test", {"return_path": "bounces.cust.test"}, "acme")
    rig.ask("POST", "/domains/cust.test/check", key="acme")

    # What comes back comes back under its own name, and its tenant's.
    with smtplib.SMTP("127.0.0.1", rig.back) as client:
        refused = "Subject: failed\r\nContent-Type: text/plain\r\n\r\n550 5.1.1 no such user\r\n"
        client.sendmail("", [mail.sender], refused)
        with pytest.raises(smtplib.SMTPRecipientsRefused):
            client.sendmail("", ["somebody@bounces.cust.test"], refused)
    rig.until(lambda: rig.mta.ask("feedback"))
    assert rig.mta.ask("feedback")["rows"][0]["tenant"] == "acme"

    # Another key: it signs once its record is there.
    row = rig.ask("POST", "/domains/cust.test/rotate", {}, "acme")
    assert [key["state"] for key in row["keys"]] == ["signs", "waits"]
    row = rig.ask("POST", "/domains/cust.test/check", key="acme")
    assert [key["state"] for key in row["keys"]] == ["signs", "waits"]
    assert rig.is_signed(rig.send())
    rig.publish(row)
    row = rig.ask("POST", "/domains/cust.test/check", key="acme")
    assert [key["state"] for key in row["keys"]] == ["retired", "signs"]
    selector = row["keys"][1]["selector"].encode()
    time.sleep(1)
    mail = rig.send()
    assert b"s=" + selector in mail.body
    assert rig.is_signed(mail)

    # It survives a kill of everything, and the loss of what other processes read.
    rig.mta.end()
    for suffix in ("", "-wal", "-shm"):
        (rig.mta.folder / (domain_book.FILE + suffix)).unlink(missing_ok=True)
    rig.mta.start()
    asyncio.run(rig.mta.taking())
    again = rig.send()
    assert rig.is_signed(again)
    assert again.sender.endswith("@bounces.cust.test")
    rig.ask("DELETE", "/domains/cust.test", key="acme")
    rig.ask("GET", "/domains/cust.test", key="acme", status=404)
    time.sleep(1)
    assert b"DKIM-Signature" not in rig.send().body


def test_what_was_answered_is_there_after_a_kill(rig: Rig) -> None:
    """Of each of 40 domains, while all is killed in the middle; and readers have what the store has."""
    made = list[str]()

    def make() -> None:
        for number in range(400):
            try:
                name = f"d{number}.test"
                rig.ask(
                    "PUT", f"/domains/{name}", {"algorithm": "x", "tenant": "acme"} if number < 0 else {"tenant": ""}
                )
            except (OSError, AssertionError):
                return
            made.append(name)

    thread = threading.Thread(target=make)
    thread.start()
    rig.until(lambda: len(made) >= 5)
    rig.mta.end()
    thread.join()
    rig.mta.start()
    asyncio.run(rig.mta.taking())
    found = [row["name"] for row in rig.ask("GET", "/domains?limit=1000")["rows"]]
    assert set(made) <= set(found)
    with sqlite3.connect(rig.mta.folder / domain_book.FILE) as connection:
        assert sorted(name for (name,) in connection.execute("SELECT name FROM domains")) == sorted(found)
