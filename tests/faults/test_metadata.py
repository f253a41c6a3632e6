"""Metadata: from SMTP, HTTP and a batch to events, webhook, story, log, list and lake, over kills; sent to nobody."""

from __future__ import annotations

import asyncio
import json
import smtplib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from ports import kept_port
from survival.rig import PATIENCE_S, Mta

from tests.faults.test_reload import zonemta
from zonemta_py.journal import segments
from zonemta_py.pipeline.erasure.archive import erase_segment
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym
from zonemta_py.pipeline.journal.rows import batches
from zonemta_py.pipeline.journal.schema import ROWS
from zonemta_py.sink import Sink, SinkOptions

SECRETS = ("17", "an-order", "column-value", "from-smtp", "hidden")
MORE = """
[log]
format = "json"
metadata = true
[metadata]
headers = ["X-Kind"]
[http]
enabled = true
port = {http}
[return_path]
secret = "a secret of twenty or so"
[[event_sinks]]
name = "file"
kind = "file"
path = "{events}"
[[event_sinks]]
name = "hook"
kind = "webhook"
url = "http://127.0.0.1:{hook}/"
"""


class Receiver(BaseHTTPRequestHandler):
    got: list[dict[str, Any]] = []  # noqa: RUF012 - one for all requests

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.extend(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def webhook() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    Receiver.got.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, Receiver.got
        server.shutdown()
        thread.join()


def by_smtp(mta: Mta, *fields: str) -> None:
    head = "".join(f"{field}\r\n" for field in fields)
    with smtplib.SMTP("127.0.0.1", mta.port, timeout=30) as client:
        client.sendmail("ann@src.test", ["smtp@x.test"], f"Subject: hello\r\n{head}\r\nHi\r\n".encode())


def client_of(mta: Mta, port: int) -> httpx.Client:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            head = {"authorization": f"Bearer {(mta.folder / 'http.token').read_text().strip()}"}
            client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=head, timeout=PATIENCE_S)
            assert client.get("/v1/health").status_code == 200
            return client
        except (OSError, httpx.TransportError):
            assert time.monotonic() < end
            time.sleep(0.05)


def posted(client: httpx.Client, **content: Any) -> httpx.Response:
    return client.post(
        "/v1/inject", json=content, headers={"idempotency-key": json.dumps(content, sort_keys=True)[:99]}
    )


MESSAGE: dict[str, Any] = {
    "from": "ann@src.test", "subject": "hi", "text": "Hi", "headers": {"X-Kind": "bill", "X-Meta-Field": "hidden"},
}  # fmt: skip
EXPECTED = {
    "smtp@x.test": {"order": "from-smtp"},
    "one@x.test": {"order": 17, "who": "an-order", "field": "hidden"},
    "two@x.test": {"order": 17, "field": "hidden"},
    "batch@x.test": {"of": "all", "order": "column-value", "list": [1]},
    "later-held@x.test": {"order": 17},
}


def submitted(mta: Mta, client: httpx.Client) -> None:
    by_smtp(mta, "X-Meta-Order: from-smtp", "X-Kind: bill")
    to = [{"address": "one@x.test", "metadata": {"who": "an-order"}}, "two@x.test"]
    assert posted(client, **MESSAGE, to=to, metadata={"order": 17}).status_code == 200
    late = {**MESSAGE, "headers": {"X-Kind": "bill"}}
    assert posted(client, **late, to=["later-held@x.test"], metadata={"order": 17}).status_code == 200
    template = {"from": "N <ann@src.test>", "subject": "Dear {{ name }}", "text": "Hi {{ name }}\n"}
    template["headers"] = {"X-Kind": "bill"}  # type: ignore[assignment]
    put = client.put("/v1/campaigns/spring", json={"sender": "ann@src.test", "template": template})
    assert put.status_code in (200, 201), put.text
    rows = [["batch@x.test", "Anna", "column-value", '{"list": [1]}']]
    columns = ["name", "meta_order", "metadata"]
    batch = posted(client, campaign="spring", columns=columns, recipients=rows, metadata={"of": "all"})
    assert batch.status_code == 200, batch.text


def refused(mta: Mta, client: httpx.Client) -> None:
    """What is too much, with a sentence."""
    with pytest.raises(smtplib.SMTPDataError) as error:
        by_smtp(mta, f"X-Meta-Order: {'x' * 900}", f"X-Meta-Kind: {'y' * 900}", f"X-Meta-More: {'z' * 900}")
    assert error.value.smtp_code == 550
    assert b"takes more than 2,048 bytes" in error.value.smtp_error
    for to, metadata, where in (
        (["one@x.test"], {"a": "x" * 3000}, "metadata"),
        (["one@x.test"], {"a b": 1}, "metadata"),
        ([{"address": "one@x.test", "metadata": {"a": "x" * 600}}], {}, "to[0].metadata"),
    ):
        said = posted(client, **MESSAGE, to=to, metadata=metadata)
        assert said.status_code == 422
        assert said.json()["errors"][0]["where"] == where, said.text
    said = posted(client, campaign="spring", columns=["metadata"], recipients=[["one@x.test", "17"]])
    assert (said.status_code, said.json()["errors"][0]["where"]) == (422, "recipients[0]")
    assert "is not a JSON object" in said.json()["errors"][0]["what"]


@pytest.mark.parametrize("queues", [1, 2])
async def test_what_a_message_came_with_comes_back(tmp_path: Path, queues: int) -> None:
    events = tmp_path / "events.jsonl"
    with kept_port() as http, webhook() as (hook, heard):
        more = MORE.format(http=http.getsockname()[1], events=events, hook=hook)
        rules = ("rcpt:/^later-/ 450 4.2.1 not now",)
        async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=rules)) as sink:
            folder = tmp_path / "queue"
            settings: dict[str, Any] = {"processes": 1, "retry_min": 0.01, "queues": queues}
            mta = Mta(folder, sink.port, home=tmp_path, more=more, **settings)
            mta.start()
            try:
                await mta.taking()
                client = await asyncio.to_thread(client_of, mta, http.getsockname()[1])
                await asyncio.to_thread(submitted, mta, client)
                await asyncio.to_thread(refused, mta, client)
                while len(sink.messages) < 3:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)
                mta.kill("all")
                mta.dead()
                mta.start()
                await mta.taking()

                async def waiting() -> list[dict[str, Any]]:
                    rows: list[dict[str, Any]] = (await asyncio.to_thread(mta.ask, "list"))["rows"]
                    return rows

                while not (rows := await waiting()) or len(rows) > 1 or rows[0]["attempts"] < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                [row] = rows
                assert (row["metadata"], row["headers"]) == ({"order": 17}, {"x-kind": "bill"})
                shown = await asyncio.to_thread(mta.ask, "show", id=row["id"])
                assert shown["envelope"]["metadata"] == {"order": 17}
                status, said = await asyncio.to_thread(zonemta, mta, "trace", "--json", "one@x.test")
                assert status == 0, said
                story = json.loads(said)["rows"]
                assert story
                for one in story:
                    if one["what"] != "ended":
                        assert one["metadata"] == EXPECTED["one@x.test"], one

                client = await asyncio.to_thread(client_of, mta, http.getsockname()[1])
                came = {"rows": [{"kind": "complaint", "recipient": "one@x.test", "message": story[0]["id"]}]}
                told = await asyncio.to_thread(lambda: client.post("/v1/feedback", json=came))
                assert told.status_code == 200, told.text
                status, said = await asyncio.to_thread(zonemta, mta, "queue", "delete", "--yes", row["id"])
                assert status == 0, said

                def known() -> set[str]:
                    return {one["type"].partition(".")[2] for one in heard}

                while not {"feedback", "delivered", "deferred"} <= known() or len(lines(events)) < len(heard):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            finally:
                mta.end()
        for mail in sink.messages:
            assert not [word for word in SECRETS[1:] if word.encode() in mail.body], "it is sent to nobody"
            assert b"x-meta" not in mail.body.lower()
    for found in (heard, lines(events)):
        check(found)
    log = [json.loads(line) for line in mta.log.read_text().splitlines() if line.startswith('{"')]
    answered = [one for one in log if one.get("recipient") == "one@x.test" and one.get("verdict") == "delivered"]
    assert [json.loads(one["metadata"]) for one in answered] == [EXPECTED["one@x.test"]]
    lake_and_erasure(folder)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def check(events: list[dict[str, Any]]) -> None:
    kinds = set[str]()
    for one in events:
        kind, data = one["type"].partition(".")[2], one["data"]
        if data.get("recipient") in EXPECTED and kind not in ("suppressed", "unsuppressed"):
            assert data.get("metadata") == EXPECTED[data["recipient"]], (kind, data)
            assert data.get("headers") == {"x-kind": "bill"}, (kind, data)
            kinds.add(kind)
        if kind == "finished":
            assert "metadata" not in data
    assert {"queued", "attempted", "delivered", "deferred", "feedback"} <= kinds
    accepted = [one["data"] for one in events if one["type"].endswith(".accepted")]
    assert {"order": 17, "field": "hidden"} in [one.get("metadata") for one in accepted]


def lake_and_erasure(folder: Path) -> None:
    """The lake's rows have them; of a person that is erased from the archive nothing is left, of others all."""
    journals = [
        path for place in folder.rglob("*") if place.name in ("journal", "archive") for path in segments.files(place)
    ]

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in journals:
            payloads = [
                record.seq.to_bytes(8, "little") + record.ms.to_bytes(8, "little") + bytes([record.type]) + record.body
                for record in segments.read_file(path, [])
            ]
            found += pa.Table.from_batches(list(batches(payloads, 0, path.name, [])), ROWS).to_pylist()
        return found

    def told() -> dict[str, set[str]]:
        said: dict[str, set[str]] = {}
        for row in rows():
            if row["recipient"] and row["type"] not in ("TAKEN", "SUPPRESS"):
                said.setdefault(row["recipient"], set()).add(row["metadata"] or "")
        return said

    before = told()
    for address, expected in EXPECTED.items():
        assert [json.loads(one) for one in before[address]] == [expected], address
    person = DataSubject("one@x.test", pseudonym())
    for path in journals:
        erase_segment(path, person)
        assert b"an-order" not in path.read_bytes()
    after = told()
    assert "one@x.test" not in after
    assert [json.loads(one) for one in after["two@x.test"]] == [EXPECTED["two@x.test"]]
    left = [json.loads(one) for one in after[person.stand_in] if one]
    assert all(one == EXPECTED["two@x.test"] for one in left), "of the message, where another is named, too"
