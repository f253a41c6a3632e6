"""Webhooks against a real HTTP server: bodies, signatures, what is tried again and what is a dead letter."""

import asyncio
import base64
import hashlib
import hmac
import socket
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from zonemta_py.config.services.events import EventSink, signing_key
from zonemta_py.events.sinks.base import Ready, Rejected, SinkDown
from zonemta_py.events.sinks.webhook import ANSWER_BYTES, WebhookSink

KEYS = ["whsec_" + base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2)]
Make = Callable[..., Awaitable[Any]]
MakeReady = Callable[..., Ready]


async def opened(port: int, **keys: Any) -> WebhookSink:
    url = keys.pop("url", f"http://127.0.0.1:{port}/hook")
    sink = WebhookSink(EventSink(name="w", kind="webhook", url=url, **keys), "urn:zonemta:0a1b2c")
    await sink.open()
    return sink


@pytest.mark.parametrize(
    ("form", "kind", "requests"),
    [
        ("batch", "application/cloudevents-batch+json", 1),
        ("jsonlines", "application/x-ndjson", 1),
        ("single", "application/cloudevents+json", 3),
    ],
)
async def test_forms(receiver: Make, ready: MakeReady, form: str, kind: str, requests: int) -> None:
    there = await receiver()
    sink = await opened(there.port, format=form)
    batch = [ready(seq) for seq in (1, 2, 3)]
    await sink.send(batch)
    await sink.close()
    assert there.ids == [one.id for one in batch]
    assert [post.headers["content-type"].partition(";")[0] for post in there.posts] == [kind] * requests


async def test_each_secret_signs_as_standard_webhooks_has_it(receiver: Make, ready: MakeReady) -> None:
    there = await receiver()
    sink = await opened(there.port, secret=KEYS)
    await sink.send([ready(1), ready(2)])
    await sink.close()
    (post,) = there.posts
    assert abs(int(post.headers["webhook-timestamp"]) - time.time()) < 300
    signed = f"{post.headers['webhook-id']}.{post.headers['webhook-timestamp']}.".encode() + post.body
    expected = [base64.b64encode(hmac.digest(signing_key(key), signed, hashlib.sha256)).decode() for key in KEYS]
    assert post.headers["webhook-signature"].split() == [f"v1,{one}" for one in expected]
    assert post.headers["webhook-id"] == "0a1b2c-1-0+2"


@pytest.mark.parametrize("form", ["batch", "jsonlines", "single"])
async def test_the_library_of_standard_webhooks_verifies_it(receiver: Make, ready: MakeReady, form: str) -> None:
    """With any of the secrets; and refuses it with another, or another body."""
    there = await receiver()
    sink = await opened(there.port, secret=KEYS, format=form)
    await sink.send([ready(1)])
    await sink.close()
    (post,) = there.posts
    for key in KEYS:
        Webhook(key).verify(post.body, post.headers)
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    for key, body in ((other, post.body), (KEYS[0], post.body + b" ")):
        with pytest.raises(WebhookVerificationError):
            Webhook(key).verify(body, post.headers)


async def test_logins(receiver: Make, ready: MakeReady) -> None:
    there = await receiver()
    for keys, expected in (
        ({"password": "sesame"}, "Bearer sesame"),
        ({"username": "ann", "password": "sesame"}, f"Basic {base64.b64encode(b'ann:sesame').decode()}"),
    ):
        sink = await opened(there.port, **keys)
        await sink.send([ready(1)])
        await sink.close()
        assert there.posts[-1].headers["authorization"] == expected


@pytest.mark.parametrize("form", ["batch", "jsonlines", "single"])
async def test_what_is_wrong_with_a_batch_is_found_by_halving(receiver: Make, ready: MakeReady, form: str) -> None:
    """Only the events that are refused alone are rejected; every other one arrives, in order."""
    bad = {"0a1b2c-3-0", "0a1b2c-9-0"}
    arrived: list[str] = []

    def answer(post: Any) -> tuple[int, dict[str, str], bytes]:
        if bad & set(post.ids()):
            return 422, {}, b"no"
        arrived.extend(post.ids())
        return 200, {}, b""

    there = await receiver(answer)
    sink = await opened(there.port, format=form)
    batch = [ready(seq) for seq in range(13)]
    with pytest.raises(Rejected, match="it answered 422") as caught:
        await sink.send(batch)
    await sink.close()
    assert caught.value.indices == (3, 9)
    assert arrived == [one.id for one in batch if one.id not in bad]


async def test_a_batch_that_is_too_large_goes_in_parts(receiver: Make, ready: MakeReady) -> None:
    there = await receiver(lambda post: (413 if len(post.body) > 2000 else 202, {}, b""))
    sink = await opened(there.port)
    batch = [ready(seq, size=500) for seq in range(8)]
    await sink.send(batch)
    await sink.close()
    arrived = [post for post in there.posts if len(post.body) <= 2000]
    assert [one for post in arrived for one in post.ids()] == [one.id for one in batch]


@pytest.mark.parametrize("status", [301, 302, 401, 403, 404, 405, 408, 409, 425, 429, 500, 502, 503, 504])
async def test_what_people_can_mend_is_tried_again(receiver: Make, ready: MakeReady, status: int) -> None:
    """Redirects are among them, and are not followed."""
    there = await receiver(lambda _: (status, {"location": "/elsewhere"}, b""))
    sink = await opened(there.port)
    with pytest.raises(SinkDown, match=f"it answered {status}") as caught:
        await sink.send([ready(1), ready(2)])
    await sink.close()
    assert caught.value.retry_after_s is None
    assert [post.path for post in there.posts] == ["/hook"]


async def test_retry_after(receiver: Make, ready: MakeReady) -> None:
    said = ""
    there = await receiver(lambda _: (503, {"retry-after": said}, b""))
    sink = await opened(there.port)
    for said, least, most in (("7", 7, 7), (formatdate(time.time() + 90, usegmt=True), 60, 91)):  # noqa: B007
        with pytest.raises(SinkDown) as caught:
            await sink.send([ready(1)])
        assert caught.value.retry_after_s is not None
        assert least <= caught.value.retry_after_s <= most
    await sink.close()


async def test_nobody_there_and_nobody_who_answers(receiver: Make, ready: MakeReady) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        sink = await opened(mute.getsockname()[1], timeout_s=0.2)
        with pytest.raises(SinkDown, match="took too long"):
            await sink.send([ready(1)])
        await sink.close()
        gone = mute.getsockname()[1]
    sink = await opened(gone)
    with pytest.raises(SinkDown, match="cannot be reached"):
        await sink.send([ready(1)])
    await sink.close()


async def test_a_long_answer_is_not_read(ready: MakeReady) -> None:
    """Somebody who never stops talking."""

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * ANSWER_BYTES)
            await asyncio.sleep(0.01)

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    sink = await opened(server.sockets[0].getsockname()[1])
    await asyncio.wait_for(sink.send([ready(1)]), 60)
    await sink.close()
    server.close()


async def test_certificates_are_validated(receiver: Make, ready: MakeReady, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    there = await receiver(ssl_certfile=tmp_path / "server.pem", ssl_keyfile=tmp_path / "server.pem")
    url = f"https://127.0.0.1:{there.port}/hook"
    sink = await opened(0, url=url)
    with pytest.raises(SinkDown, match="certificate verify failed"):
        await sink.send([ready(1)])
    await sink.close()
    sink = await opened(0, url=url, ca_file=tmp_path / "ca.pem")
    await sink.send([ready(1)])
    await sink.close()
    assert there.ids == ["0a1b2c-1-0"]
