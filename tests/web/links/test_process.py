"""A real MTA: links over TLS, in a process of their own; secrets change while mail is out; its queue is killed between
a click and the answer."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import smtplib
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from aiosmtpd.controller import Controller
from ports import free_port
from survival.rig import Mta

from tests.web.links.conftest import ONE_CLICK, SECRET, path
from zonemta_py.mail.addresses import link, verp

PATIENCE_S = 60


OLD_PATH, NEW, NEW_PATH = "an old secret of ours", "fedcba9876543210", "a new secret of ours"
MORE = """
[links]
enabled = true
port = {port}
certificate = "{pem}"
url = "https://127.0.0.1:{port}"
secrets = ["{secret}"]
[return_path]
verp = "back.test"
unsubscribe_domain = "leave.test"
secret = "{path}"
earlier_secrets = []
[[listeners]]
name = "mx"
port = {mx}
feedback = true
relay_networks = []
"""


class Letters:
    """A receiving server: return path and unsubscribe link of each message, by its recipient; and what came, its
    subject and recipient. written: the address that takes a mail instead."""

    def __init__(self) -> None:
        self.got: dict[str, tuple[str, str]] = {}
        self.written: dict[str, str] = {}
        self.came = set[tuple[str, str]]()

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        to, fields = envelope.rcpt_tos[0], envelope.content
        found = re.search(rb"^List-Unsubscribe:\s*<(\S+)>,\s*<mailto:([^?]+)", fields, re.MULTILINE)
        subject = re.search(rb"^Subject: (.*?)\r?$", fields, re.MULTILINE)
        assert subject is not None
        self.came.add((subject[1].decode(), to))
        if found is not None:
            self.got[to], self.written[to] = (envelope.mail_from, found[1].decode()), found[2].decode()
        return "250 taken"


class Running:
    """A real MTA that answers links over TLS, and takes back what returns to its addresses."""

    def __init__(self, folder: Path) -> None:
        authority, self.port, self.mx, self.secret = trustme.CA(), free_port(), free_port(), SECRET
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "pem"))
        self.letters = Letters()
        self.server = Controller(self.letters, "127.0.0.1", free_port())
        self.server.start()
        more = MORE.format(port=self.port, mx=self.mx, pem=folder / "pem", secret=SECRET, path=OLD_PATH)
        self.mta = Mta(folder / "queue", self.server.port, home=folder / "home", more=more)
        self.mta.start()
        context = ssl.create_default_context()
        authority.configure_trust(context)
        self.client = httpx.Client(base_url=f"https://127.0.0.1:{self.port}", verify=context, timeout=PATIENCE_S)
        _until(lambda: self.client.get("/health").text == "zonemta links\n")

    def reload(self, *changes: tuple[str, str]) -> None:
        """With lines of the configuration replaced."""
        text = self.mta.config_file.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.mta.config_file.write_text(text)
        command = [sys.executable, "-m", "zonemta_py", "reload", "--config", str(self.mta.config_file)]
        ran = subprocess.run(command, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def sent(self, recipient: str) -> tuple[str, str]:
        """Return path and token of a message that goes out now."""
        with smtplib.SMTP("127.0.0.1", self.mta.port) as client:
            client.sendmail("news@src.test", recipient, "Subject: x\r\nX-Unsubscribe: yes\r\n\r\nx\r\n")
        _until(lambda: recipient in self.letters.got)
        back, url = self.letters.got[recipient]
        return back, url.removeprefix(f"https://127.0.0.1:{self.port}/u/")

    def send(self, subject: str, *people: str, fields: str = "", list_id: str = "") -> None:
        """An issue of a list, which asks that leaving it stops the list alone; or another message."""
        if list_id:
            fields += f"List-Id: {subject} <{list_id}>\r\nX-Unsubscribe: list\r\n"
        with smtplib.SMTP("127.0.0.1", self.mta.port) as client:
            for one in people:
                client.sendmail("news@src.test", one, f"Subject: {subject}\r\n{fields}\r\nx\r\n")

    def takes(self, address: str) -> int:
        """What RCPT says to it."""
        with smtplib.SMTP("127.0.0.1", self.mx) as client:
            client.ehlo()
            client.mail("")
            return client.rcpt(address)[0]

    def leaves(self, token: str) -> int:
        """What a click says."""
        return self.client.post(f"/u/{token}", data=ONE_CLICK, headers={"connection": "close"}).status_code

    def end(self) -> None:
        self.client.close()
        self.mta.end()
        self.server.stop()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("mta"))
    yield made
    made.end()


def test_who_leaves_one_newsletter_keeps_the_other(running: Running) -> None:
    """By a click or by a mail, of an issue that has come: the issue of that list that waits does not, nor does the
    next; those of the other list, of another tenant's list of that name, and a receipt do. What was answered holds
    after the queue was killed."""
    people = ("click@y.test", "mail@y.test", "stays@y.test")
    came, weekly = running.letters.came, "Weekly.Shop.example"
    issue, later = "X-Tenant: acme\r\nX-Campaign: {}\r\n", "X-Deliver-After: 86400\r\n"
    running.send("weekly 7", *people, fields=issue.format("weekly-7"), list_id=weekly)
    _until(lambda: {("weekly 7", one) for one in people} <= came)
    running.send("weekly 8", *people, fields=issue.format("weekly-8") + later, list_id=weekly)
    running.send("products 3", *people, fields=issue.format("products-3") + later, list_id="products.shop.example")
    running.send("of beta", *people, fields="X-Tenant: beta\r\n" + later, list_id=weekly)
    _, url = running.letters.got[people[0]]
    assert running.leaves(url.rpartition("/")[2]) == 200
    with smtplib.SMTP("127.0.0.1", running.mx) as client:
        client.sendmail(people[1], running.letters.written[people[1]], "Subject: unsubscribe\r\n\r\n")
    (queue,) = [pid for pid, role in running.mta.children().items() if role == "queue"]
    os.kill(queue, signal.SIGKILL)
    for one in people[:2]:
        _until(lambda one=one: running.mta.ask("suppression", address=one) is not None)  # type: ignore[misc]
        assert running.mta.ask("suppression", address=one)["scope"] == "list:acme/weekly.shop.example"
    running.send("weekly 9", *people, fields=issue.format("weekly-9"), list_id=weekly)
    running.send("receipt", *people, fields="X-Tenant: acme\r\n")
    running.mta.ask("task", verb="flush", where={"all": True}, by="ann")
    everybody = {(subject, one) for subject in ("products 3", "of beta", "receipt") for one in people}
    stays = {(subject, people[2]) for subject in ("weekly 8", "weekly 9")}
    _until(lambda: everybody | stays <= came)
    assert {row for row in came if row[1] in people[:2] and row[0] in ("weekly 8", "weekly 9")} == set()
    _until(lambda: running.mta.ask("size")["total"]["messages"] == 0)
    assert everybody | stays | {("weekly 7", one) for one in people} == {row for row in came if row[1] in people}


def test_secrets_change_while_mail_is_out(running: Running) -> None:
    """By a reload: what the old ones signed is taken as long as they are kept, and new mail is signed by the new."""
    before, today = running.sent("before@x.test"), int(time.time()) // 86_400
    running.reload(
        (f'secrets = ["{SECRET}"]', f'secrets = ["{NEW}", "{SECRET}"]'),
        (f'secret = "{OLD_PATH}"\nearlier_secrets = []', f'secret = "{NEW_PATH}"\nearlier_secrets = ["{OLD_PATH}"]'),
    )
    after = running.sent("after@x.test")
    for (back, token), secret, path_secret in ((before, SECRET, OLD_PATH), (after, NEW, NEW_PATH)):
        assert link.decode(token, [secret]).recipient == verp.decode(back, [path_secret], today, 7).recipient
    assert [running.takes(back) for back, _ in (before, after)] == [250, 250]
    assert [running.leaves(token) for _, token in (before, after)] == [200, 200]
    running.secret = NEW
    running.reload((f', "{SECRET}"]', "]"), (f'earlier_secrets = ["{OLD_PATH}"]', "earlier_secrets = []"))
    _until(lambda: running.leaves(before[1]) == 403)
    _until(lambda: running.takes(before[0]) == 550)
    assert (running.leaves(after[1]), running.takes(after[0])) == (200, 250)


def test_the_queue_is_killed_between_a_click_and_its_answer(running: Running) -> None:
    """Who heard 200 is on the list; and who waited was answered by the next process of the queue, at once."""
    client, mta = running.client, running.mta
    click = client.post(path(secret=running.secret, recipient="first@example.com"), data=ONE_CLICK)
    assert (click.status_code, click.http_version) == (200, "HTTP/1.1")
    (queue,) = [pid for pid, role in mta.children().items() if role == "queue"]
    os.kill(queue, signal.SIGSTOP)
    codes: dict[str, int] = {}

    def clicks(address: str) -> None:
        codes[address] = client.post(path(secret=running.secret, recipient=address), data=ONE_CLICK).status_code

    people = [f"r{number}@example.com" for number in range(8)]
    threads = [threading.Thread(target=clicks, args=(one,)) for one in people]
    for thread in threads:
        thread.start()
    assert codes == {}
    os.kill(queue, signal.SIGKILL)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert codes == dict.fromkeys(people, 200)
    for one in ["first@example.com", *people]:
        _until(lambda one=one: mta.ask("suppression", address=one) is not None)  # type: ignore[misc]
        assert mta.ask("suppression", address=one)["scope"] == "campaigns:acme"


def _until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(httpx.TransportError):
            if there():
                return
        assert time.monotonic() < end
        time.sleep(0.02)
