"""One-click unsubscribes (RFC 8058): what mailbox providers send, what scanners do, and links that are not ours."""

from __future__ import annotations

import asyncio
import base64
import socket
from typing import Any

import pytest

from tests.web.links.conftest import ID, ONE_CLICK, SECRET, path, today
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

FORM = "application/x-www-form-urlencoded"
BOUNDARY = "----=_Part_1_2.3"
PARTS = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n\r\nOne-Click\r\n--{BOUNDARY}--\r\n'
).encode()
REQUESTS = {
    # Gmail names itself so; Yahoo and Outlook send the same body (RFC 8058 8.2), without cookies, referrer or login.
    "gmail": (
        FORM,
        b"List-Unsubscribe=One-Click",
        {"user-agent": "Gmail Actions"},
    ),
    "yahoo": (FORM, b"List-Unsubscribe=One-Click", {"user-agent": ""}),
    "outlook": (f"{FORM}; charset=utf-8", b"List-Unsubscribe=One-Click", {"accept": "*/*"}),
    "multipart": (f'multipart/form-data; boundary="{BOUNDARY}"', PARTS, {}),
    # Mail programs: what a browser's fetch() sends unasked, and those that name no type.
    "text": ("text/plain;charset=UTF-8", b"List-Unsubscribe=One-Click", {"origin": "moz-extension://x"}),
    "no type": ("", b"List-Unsubscribe=One-Click\r\n", {}),
    "other case": (FORM, b"list-unsubscribe=one-click", {}),
    "expect": (FORM, b"List-Unsubscribe=One-Click", {"expect": "100-continue"}),
}


@pytest.mark.parametrize("who", REQUESTS)
def test_what_mailbox_providers_send(open_links: Any, who: str) -> None:
    """200 at once, without a redirect or a cookie; the person is on the list for campaigns of that tenant only."""
    door = open_links()
    kind, body, headers = REQUESTS[who]
    sent = {**headers, **({"content-type": kind} if kind else {})}
    for _ in range(3):
        answer = door.client.post(path(), content=body, headers=sent)
        assert (answer.status_code, answer.history, "set-cookie" in answer.headers) == (200, [], False)
    assert door.lists({"campaigns:acme": "unsubscribe"})


@pytest.mark.parametrize(
    ("changed", "scope"),
    [
        ({"scope": "campaign"}, "campaign:acme/spring"),
        ({"scope": "campaign", "tenant": ""}, "campaign:spring"),
        ({"scope": "campaigns", "tenant": ""}, "campaigns"),
        ({"scope": "all"}, "tenant:acme"),
        ({"scope": "all", "tenant": ""}, "all"),
        ({"scope": "campaign", "campaign": ""}, "campaigns:acme"),
        ({"scope": "list", "list_name": "weekly.example"}, "list:acme/weekly.example"),
        ({"scope": "list", "list_name": "weekly.example", "tenant": ""}, "list:weekly.example"),
        ({"scope": "list"}, "campaigns:acme"),
    ],
)
def test_what_a_link_stops(open_links: Any, changed: dict[str, str], scope: str) -> None:
    door = open_links()
    """It holds when it is answered."""
    assert door.client.post(path(**changed), data=ONE_CLICK).status_code == 200
    assert door.listed() == {scope: "unsubscribe"}


def test_a_scanner_that_looks_at_everything_unsubscribes_nobody(open_links: Any) -> None:
    """GET, HEAD, OPTIONS, prefetches, and POSTs that do not say what a click says; a page is the answer to GET."""
    door = open_links()
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"):
        for more in ({}, {"purpose": "prefetch"}, {"sec-purpose": "prefetch;prerender"}, {"x-moz": "prefetch"}):
            answer = door.client.request(method, path(), headers=more)
            assert answer.status_code == {"GET": 200, "HEAD": 200, "OPTIONS": 204}.get(method, 405)
    for body in (b"", b"{}", b"List-Unsubscribe", b"List-Unsubscribe=", b"One-Click", b"url=http://x.example", PARTS):
        assert door.client.post(path(), content=body, headers={"content-type": FORM}).status_code == 400
    assert door.client.get(path() + "?List-Unsubscribe=One-Click").status_code == 200
    assert door.client.post(path() + "?List-Unsubscribe=One-Click").status_code == 400
    assert door.client.post(path(purpose="preferences"), data={"leave": "everything"}).status_code == 400
    assert door.client.post(path(purpose="preferences"), data=ONE_CLICK).status_code == 400
    assert door.listed() == {}


def test_the_page_is_for_nobody_else(open_links: Any) -> None:
    """Nothing is loaded from elsewhere, nobody learns of the link, nothing is stored; the address is shown in part."""
    answer = open_links().client.get(path())
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-robots-tag"] == "noindex, nofollow"
    assert answer.headers["cache-control"] == "no-store"
    assert "http" not in answer.text
    assert "script" not in answer.text
    assert "ann@example.com" not in answer.text
    assert "a…@example.com" in answer.text


def test_links_that_are_not_ours(open_links: Any) -> None:
    """Forged, cut, of another secret or purpose: all the same page, whoever they are about; nothing is done."""
    door = open_links()
    token = path().removeprefix("/u/")
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    wrong = [
        path(secret="another secret of ours"),
        "/u/",
        "/u/x",
        "/u/" + token[:-1],
        "/u/" + token[:40],
        "/u/" + "A" * 9_000,
    ]
    wrong += ["/u/" + token + "A", "/u/%00", "/u/" + path(purpose="preferences").removeprefix("/p/"), "/p/" + token]
    for at in range(0, len(raw), 7):
        changed = raw.copy()
        changed[at] ^= 1
        wrong.append("/u/" + base64.urlsafe_b64encode(changed).rstrip(b"=").decode())
    pages = set()
    for number, one in enumerate(wrong):
        headers = {"x-forwarded-for": f"192.0.2.{number}"}
        answer = door.client.post(one, data=ONE_CLICK, headers=headers)
        assert answer.status_code == 403, one
        pages.add(answer.text)
    assert len(pages) == 1
    assert door.listed() == {}


def test_old_links(open_links: Any) -> None:
    """410, and what to do; one that is not as old as that works (to the day: tests/mail/test_link.py)."""
    door = open_links(days=30)
    answer = door.client.post(path(day=today() - 31), data=ONE_CLICK)
    assert (answer.status_code, "newer" in answer.text) == (410, True)
    assert door.listed() == {}
    assert door.client.post(path(day=today() - 29), data=ONE_CLICK).status_code == 200


def test_secrets_change_while_links_are_out(open_links: Any) -> None:
    """The first signs, all verify; one that is no longer there does not."""
    new, old = "a newer secret of ours", SECRET
    door = open_links(secrets=[new, old])
    assert door.client.post(path(secret=old), data=ONE_CLICK).status_code == 200
    assert door.client.post(path(secret=new), data=ONE_CLICK).status_code == 200
    assert open_links(secrets=[new]).client.post(path(secret=old), data=ONE_CLICK).status_code == 403


def test_a_client_that_tries_many_links_is_stopped(open_links: Any) -> None:
    """By its address as a trusted proxy says it; others are not, nor is a valid click of a provider, however many."""
    door = open_links(wrong_per_minute=5, pages_per_minute=3, trusted_proxies=["127.0.0.0/8", "10.0.0.0/8"])
    bad, good = {"x-forwarded-for": "198.51.100.7, 192.0.2.1, 10.0.0.3"}, {"x-forwarded-for": "192.0.2.2"}
    codes = [door.client.get("/u/x", headers=bad).status_code for _ in range(7)]
    assert codes == [403] * 5 + [429] * 2
    assert door.client.get("/u/x", headers=good).status_code == 403
    assert [door.client.get(path(), headers=good).status_code for _ in range(4)] == [200] * 3 + [429]
    for number in range(20):
        click = path(recipient=f"r{number}@example.com")
        for headers in (good, bad):
            assert door.client.post(click, data=ONE_CLICK, headers=headers).status_code == 200


def test_large_bodies_are_not_read(open_links: Any) -> None:
    door = open_links()
    assert door.client.post(path(), content=b"List-Unsubscribe=One-Click&x=" + b"x" * 9_000).status_code == 413
    assert door.listed() == {}


def test_another_spelling_of_the_address_is_the_same_person(open_links: Any) -> None:
    door = open_links()
    assert door.client.post(path(recipient="Ann@EXAMPLE.com"), data=ONE_CLICK).status_code == 200
    assert door.lists({"campaigns:acme": "unsubscribe"})


def test_below_a_path(open_links: Any) -> None:
    """links.url may have one; a proxy may pass it on or take it off."""
    door = open_links(url="https://www.example.com/mail")
    for prefix in ("", "/mail"):
        assert door.client.post(prefix + path(), data=ONE_CLICK).status_code == 200
    assert door.client.get("/mail/health").text == "zonemta links\n"
    assert ID not in door.client.get("/mail").text


def test_queued_mail_is_stopped_and_a_receipt_is_not(open_links: Any) -> None:
    """The campaign's mail that waits already does not go; mail of no campaign to the same person does."""
    door = open_links(more={"zones": [{"name": "default", "host": "127.0.0.1", "port": 9}]})

    async def accept(queue: LocalQueue) -> None:
        for campaign in ("spring", "summer", None):
            envelope = Envelope("news@src.test", [Recipient("ann@example.com")], campaign=campaign, tenant="acme")
            await queue.accept(envelope, b"Subject: x\r\n\r\nx\r\n")

    async def leased(queue: LocalQueue) -> list[str]:
        return [one.campaign for one in await asyncio.wait_for(queue.lease(10), 60)]

    door.do(accept)
    assert door.client.post(path(), data=ONE_CLICK).status_code == 200
    assert door.lists({"campaigns:acme": "unsubscribe"})
    assert door.do(leased) == [""]


def test_older_ways_to_send_it(open_links: Any) -> None:
    """HTTP/1.0, and chunks of a body whose length nobody says."""
    door = open_links()
    chunks = "10\r\nList-Unsubscribe\r\na\r\n=One-Click\r\n0\r\n\r\n"
    for number, raw in enumerate((
        "POST {} HTTP/1.0\r\nContent-Length: 26\r\n\r\nList-Unsubscribe=One-Click",
        "POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
    )):  # fmt: skip
        address = f"r{number}@example.com"
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as connection:
            connection.sendall(raw.format(path(recipient=address)).encode())
            assert b" 200 " in connection.recv(100)
        assert door.lists({"campaigns:acme": "unsubscribe"}, address)
