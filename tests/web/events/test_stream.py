"""GET /v1/events: server-sent events of a real queue over real sockets, to plain clients and to a real browser."""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from open_connections import established

from tests.web.events.follower import PATIENCE_S, WATCH, Follower
from zonemta_py.disk import identity
from zonemta_py.events import hub
from zonemta_py.events.schema import json_schema
from zonemta_py.journal import segments
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.web import shares
from zonemta_py.web.api import events
from zonemta_py.web.keys import hashed

VALID = Draft202012Validator(json_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def mail(door: Any, *addresses: str, count: int = 1, **more: Any) -> None:
    async def accept(queue: Any) -> None:
        envelopes = [Envelope("", [Recipient(one) for one in addresses], 4, **more) for _ in range(count)]
        await asyncio.gather(*(queue.accept(envelope, b"Hi\r\n") for envelope in envelopes))
        await queue.core.disk.journal.stable()

    door.do(accept)


def test_a_browser_that_was_away_misses_nothing(door: Any, follow: Callable[..., Follower]) -> None:
    """From now on; then, after the last one that it has got, what happened meanwhile, each once."""
    mail(door, "before@x.test")
    first = follow()
    mail(door, "ann@x.test", "bob@x.test", campaign="spring")
    assert first.until(3) == ["accepted", "queued", "queued"]
    first.hang_up()
    mail(door, "eve@x.test")
    again = follow(last=first.rows[1][1])
    assert again.until(3) == ["queued", "accepted", "queued"]
    mail(door, "now@x.test")
    again.until(5)
    ids = [id for _, id, _ in first.rows[:2] + again.rows]
    assert len(ids) == len(set(ids)) == 7
    for kind, id, document in first.rows + again.rows:
        VALID.validate(document)
        assert (document["type"], document["id"]) == (f"zonemta.{kind}", id)


def test_filters_and_where_it_begins(door: Any, follow: Callable[..., Follower]) -> None:
    mail(door, "ann@x.test", campaign="spring")
    mail(door, "bob@y.test", tenant="shop")
    hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    everything = follow(since=hour_ago)
    assert everything.until(4) == ["accepted", "queued"] * 2
    assert follow(since=hour_ago, domain="y.test").until(1) == ["queued"]
    assert follow(since=hour_ago, campaign=["other", "spring"], type=["accepted"]).until(1) == ["accepted"]
    assert follow(since=hour_ago, tenant="shop").until(2) == ["accepted", "queued"]


def test_mistakes(door: Any) -> None:
    client = door.client_with(WATCH)
    for query, status, said in [
        ({"type": "exploded"}, 422, "type"),
        ({"since": "yesterday"}, 422, "since"),
    ]:
        answer = client.get("/v1/events", params=query)
        assert (answer.status_code, said in answer.text) == (status, True)
    for id in ("nonsense", "0a1b-1-1"):
        answer = client.get("/v1/events", headers={"last-event-id": id})
        assert answer.status_code == 422
        assert "Last-Event-ID" in answer.text
    answer = door.client_with("zmta_shop").get("/v1/events")
    assert (answer.status_code, "lacks the right events" in answer.json()["detail"]) == (403, True)
    assert door.client_with("").get("/v1/events").status_code == 401


def test_streams_take_no_place_of_requests(open_http: Callable[..., Any]) -> None:
    keys = [{"name": "watch", "hash": hashed(WATCH), "rights": ["events"]}]
    door = open_http(http={"keys": keys, "streams": 4, "requests": 1, "requests_per_key": 1})
    identity.copied(door.folder, "")
    url = f"http://127.0.0.1:{door.port}/v1/events"
    two = [Follower(url, WATCH) for _ in range(2)]
    assert [one.answered() for one in two] == [200, 200]
    assert Follower(url, WATCH).answered() == 429
    assert door.client.get("/v1/suppressions").status_code == 200
    two[0].hang_up()
    end = time.monotonic() + PATIENCE_S
    while (third := Follower(url, WATCH)).answered() != 200:
        assert time.monotonic() < end, "the place of one that has gone is free"
    for one in (two[1], third):
        one.hang_up()


def test_the_operators_key_is_shared_by_address(open_http: Callable[..., Any]) -> None:
    """Who opens all it can leaves places for those who come after, though they have the same key."""
    door = open_http(http={"streams": 8})
    identity.copied(door.folder, "")
    key = door.client.headers["authorization"].removeprefix("Bearer ")
    url = f"http://127.0.0.1:{door.port}/v1/events"
    made = list[Follower]()

    def opened(local: str) -> int:
        count = 0
        while (one := Follower(url, key, local=local)).answered() == 200:
            made.append(one)
            count += 1
        assert one.status == 429
        return count

    assert opened("127.0.0.1") == 4
    answer = door.client.get("/v1/events")
    assert "4 streams with the key 'local' from 127.0.0.1 are open" in answer.json()["detail"]
    assert "raise http.streams" in answer.json()["detail"]
    assert [opened("127.0.0.2"), opened("127.0.0.3")] == [2, 1]
    for one in made:
        one.hang_up()


def test_a_client_that_reads_nothing_holds_up_nobody(
    door: Any, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It lags in the journal, not in memory; when it reads on it gets everything; if it does not it is cut off, and
    nothing is kept for it; that is no mistake of ours to log."""
    monkeypatch.setattr(hub, "KEPT_BYTES", 20_000)
    monkeypatch.setattr(hub, "PORTION_BYTES", 10_000)
    much = {"count": 650, "headers": {"subject": "x" * 7000}}  # more than the buffers of a connection take
    with stuck(door.port) as slow:
        quick = follow()
        mail(door, "ann@x.test", **much)
        quick.until(1300)
        ours = next(iter(_hubs()))
        assert ours._bytes <= 20_000
        assert ours._listeners == 2
        slow.settimeout(PATIENCE_S)
        found = b""
        while found.count(b"\nid: ") < 1300:
            found += slow.recv(1 << 20)
    ids = [line for line in found.decode("utf-8", "replace").splitlines() if line.startswith("id: ")]
    assert len(ids) == len(set(ids)) == 1300
    monkeypatch.setattr(shares, "TAKEN_S", 3)
    with stuck(door.port) as slow:
        mail(door, "ann@x.test", **much)
        end = time.monotonic() + PATIENCE_S
        while ours._listeners > 1:
            assert time.monotonic() < end, "who takes nothing is cut off"
            time.sleep(0.02)
        while _is_open(door.port, slow.getsockname()[1]):
            assert time.monotonic() < end, "its connection stays until it reads"
            time.sleep(0.02)
    assert "Exception" not in caplog.text
    quick.until(2600)


def _is_open(port: int, client_port: int) -> bool:
    """Whether the server still has that connection."""
    ends = ("127.0.0.1", port), ("127.0.0.1", client_port)
    return any(one[:2] == ends for one in established())


def _hubs() -> Iterator[hub.Hub]:
    import gc

    return (one for one in gc.get_objects() if isinstance(one, hub.Hub) and one._listeners)


@contextmanager
def stuck(port: int) -> Iterator[socket.socket]:
    """A client with small buffers that asks, and reads nothing but the beginning."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        one.connect(("127.0.0.1", port))
        one.sendall(f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WATCH}\r\n\r\n".encode())
        assert b"200 OK" in one.recv(2000)
        yield one


def test_what_the_archive_no_longer_has_is_said(
    door: Any, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "KEPT_BYTES", 0)
    first = follow()
    mail(door, "ann@x.test")
    first.until(2)
    door.do(lambda queue: queue.ask("rotate"))
    mail(door, "bob@x.test")
    first.until(4)
    for folder in ("journal", "archive"):
        segments.files(door.folder / folder)[0].unlink()
    again = follow(last=first.rows[0][1])
    assert again.until(3) == ["missed", "accepted", "queued"]
    assert again.rows[0][2]["records"] > 0
    assert [id for _, id, _ in again.rows[1:]] == [id for _, id, _ in first.rows[2:]]


def test_silence_shows_that_it_lives(
    door: Any, follow: Callable[..., Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the client learns how far it is, although nothing of it was for its filter."""
    monkeypatch.setattr(events, "SILENT_S", 0.2)
    one = follow(type="bounced")
    mail(door, "ann@x.test")
    end = time.monotonic() + PATIENCE_S
    while one.comments < 3 or not one.last:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert one.rows == []
    assert one.last.endswith("-1"), "the recipient was the last of it"


@pytest.mark.skipif(CHROMIUM is None, reason="NOT TESTED: there is no Chromium to follow events with")
def test_the_event_source_of_a_browser(door: Any) -> None:
    """It reads them, and after a cut connection goes on where it was, by itself."""
    from playwright.sync_api import sync_playwright

    mail(door, "before@x.test")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        context = browser.new_context(extra_http_headers={"authorization": f"Bearer {WATCH}"})
        page = context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.goto(f"http://127.0.0.1:{door.port}/v1/health")
        page.evaluate("""() => new Promise((opened) => {
            window.found = [];
            window.source = new EventSource("/v1/events?domain=x.test");
            for (const type of ["queued", "bounced"])
                window.source.addEventListener(type, (e) => window.found.push([e.lastEventId, JSON.parse(e.data)]));
            window.source.onopen = opened;
        })""")
        mail(door, "ann@x.test")
        page.wait_for_function("window.found.length == 1")
        for transport in door.do(_transports):
            door.loop.call_soon_threadsafe(transport.abort)
        mail(door, "bob@x.test")
        page.wait_for_function("window.found.length == 2", timeout=PATIENCE_S * 1000)
        mail(door, "eve@x.test", "else@y.test")
        page.wait_for_function("window.found.length == 3", timeout=PATIENCE_S * 1000)
        found = page.evaluate("window.found")
        browser.close()
    assert [row["data"]["recipient"] for _, row in found] == ["ann@x.test", "bob@x.test", "eve@x.test"]
    assert [id for id, _ in found] == [row["id"] for _, row in found]


async def _transports(_: Any) -> list[Any]:
    import gc

    from zonemta_py.web.serving.connection import HttpConnection

    return [
        one.transport for one in gc.get_objects() if isinstance(one, HttpConnection) and not one.transport.is_closing()
    ]
