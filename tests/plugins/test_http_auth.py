"""The bundled plugin http_auth with a web service behind it, in the real MTA; and with it down, slow and wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import smtplib
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from ports import free_port
from programs import answering

from zonemta_py.config import Config, Plugins
from zonemta_py.plugin.arguments import Auth, Session
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.verdicts import PluginFailed
from zonemta_py.sink.server import self_made

ACCOUNTS = {"ann": "correct horse", "jürgen": "pässword", "alias": "battery"}


class Service(BaseHTTPRequestHandler):
    """What a web service does. asked: its requests so far."""

    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(document, document["username"], document["password"])

    def do_GET(self) -> None:
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        name, _, password = login.partition(":")
        self.answer({"path": self.path}, name, password)

    def answer(self, asked: dict[str, Any], name: str, password: str) -> None:
        self.asked.append(asked | {"token": self.headers.get("Authorization", "")})
        right = ACCOUNTS.get(name) == password
        body = json.dumps({"user": "ann"} if name == "alias" else {}).encode()
        self.send_response(200 if right else 403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[ThreadingHTTPServer]:
    Service.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/login"


def load(**more: Any) -> Host:
    given = {"timeout_s": 29} | more
    return Host.load(Plugins(enabled=["http_auth"], options={"http_auth": given}, timeout_s=30))


async def login(host: Host, name: str = "ann", password: str = "correct horse") -> str:
    session = Session(client="192.0.2.7", helo="pc", listener="submission", tls="TLSv1.3")
    await host.call("smtp_auth", auth=Auth(name, password), session=session)
    return session.user


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_logins(service: ThreadingHTTPServer, method: str) -> None:
    host = load(url=url(service), method=method)
    assert await login(host) == "ann"
    assert await login(host, "jürgen", "pässword") == "jürgen"
    assert await login(host, "alias", "battery") == "ann"
    for name, password in (("ann", "wrong"), ("eve", "correct horse"), ("ann", ""), ("ann", "x" * 2_000)):
        assert await login(host, name, password) == ""
    assert len(Service.asked) == 5
    said = json.dumps(Service.asked[0])
    for word in ("192.0.2.7", "pc", "submission"):
        assert word in said


async def test_it_identifies_itself(service: ThreadingHTTPServer) -> None:
    await login(load(url=url(service), token="t0ken"))
    assert Service.asked[0]["token"] == "Bearer t0ken"


async def test_what_is_remembered(service: ThreadingHTTPServer) -> None:
    """For a while, and no more logins than said; a no, too."""
    host = load(url=url(service), remember_s=3600, remember_no_s=3600, entries=2)
    for _ in range(3):
        assert await login(host) == "ann"
        assert await login(host, "ann", "wrong") == ""
    assert len(Service.asked) == 2
    await login(host, "eve", "x")
    await login(host)
    assert len(Service.asked) == 4
    host = load(url=url(service), remember_s=0, remember_no_s=0)
    for _ in range(2):
        await login(host)
    assert len(Service.asked) == 6


async def test_names_and_passwords_are_not_mixed_up(service: ThreadingHTTPServer) -> None:
    host = load(url=url(service), remember_s=3600)
    assert await login(host) == "ann"
    assert await login(host, "anncorrect", " horse") == ""


async def test_down(service: ThreadingHTTPServer) -> None:
    """Closed: come again; open: only [users] decides. What is remembered works all the same."""
    where = url(service)
    known, closed, opened = load(url=where), load(url=where), load(url=where, failing="open")
    assert await login(known) == "ann"
    service.shutdown()
    service.server_close()
    with pytest.raises(PluginFailed) as caught:
        await login(closed)
    assert "start the service, or correct url" in caught.value.problem
    assert "correct horse" not in caught.value.problem
    assert await login(opened) == ""
    assert {"plugin": "http_auth", "counter": "not_asked", "value": 1} in opened.statistics()
    assert await login(known) == "ann"


def reply(body: bytes, status: bytes = b"200 OK", kind: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        status, kind, len(body), body,
    )  # fmt: skip


WRONG = {
    "error": reply(b"", b"500 Oops"),
    "moved": reply(b"", b"302 Found\r\nLocation: /there"),
    "no JSON": reply(b"<html>"),
    "no name": reply(b'{"user": 5}'),
    "two lines": reply(b'{"user": "ann\\r\\nX"}'),
    "nothing": b"",
    "no HTTP": b"220 smtp\r\n",
    "too much": b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + b" " * 200_000,
}


@pytest.mark.parametrize("what", [*WRONG, "never", "half"])
async def test_slow_and_wrong(what: str) -> None:
    """Nobody gets in, and nothing is remembered."""
    slow = what in ("never", "half")
    answer = WRONG.get(what, b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{" if what == "half" else b"")
    async with answering(answer, stays=slow) as port:
        where, limit = f"http://127.0.0.1:{port}/", {"timeout_s": 0.3} if slow else {}
        host = load(url=where, **limit)
        for _ in range(2):
            with pytest.raises(PluginFailed) as caught:
                await login(host)
            assert where in caught.value.problem
        assert await login(load(url=where, failing="open", **limit)) == ""


async def test_no_more_requests_than_said(service: ThreadingHTTPServer) -> None:
    host = load(url=url(service), connections=1)
    found = await asyncio.gather(*(login(host, name, word) for name, word in ACCOUNTS.items() for _ in range(3)))
    assert sorted(found) == ["ann"] * 6 + ["jürgen"] * 3


def test_through_the_mta(service: ThreadingHTTPServer, start_mta: Any, tmp_path: Path) -> None:
    """[users] is asked too."""
    (tmp_path / "certificate.pem").write_bytes(self_made("mta.test"))
    port = free_port()
    running = start_mta(
        f"[plugins]\nenabled = ['http_auth']\n[plugins.options.http_auth]\nurl = '{url(service)}'\n"
        f"[[listeners]]\nname = 'submission'\nport = {port}\ntls = 'starttls'\nauth = true\nrequire_tls = true\n"
        f"certificate = '{tmp_path}/certificate.pem'\nrelay_networks = []\n"
        f"[users]\nbob = '{PasswordHasher().hash('own')}'\n"
    )
    for name, password, code in (("ann", "correct horse", 235), ("bob", "own", 235), ("ann", "wrong", 535)):
        with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
            client.starttls()
            if code == 235:
                assert client.login(name, password)[0] == code
            else:
                with pytest.raises(smtplib.SMTPAuthenticationError) as caught:
                    client.login(name, password)
                assert caught.value.smtp_code == code
    service.shutdown()
    service.server_close()
    with smtplib.SMTP("127.0.0.1", port, timeout=60) as client:
        client.starttls()
        with pytest.raises(smtplib.SMTPAuthenticationError) as caught:
            client.login("eve", "x")
        assert caught.value.smtp_code == 451
    assert "start the service" in running.mta.log_tail(40)


def test_the_example_of_its_page() -> None:
    import plugins.http_auth as page

    lines = (page.__doc__ or "").splitlines()
    document = tomllib.loads("\n".join(line[4:] for line in lines if line.startswith("    ")))
    Host.load(Config.model_validate(document).plugins)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"url": "accounts.example.com"}, "is not a URL"),
        ({"url": "http://accounts.example.com/"}, "must not travel in the clear; use https"),
        ({"url": "https://a.test/", "method": "GET", "token": "t0ken"}, "use POST with a token"),
        ({"url": "https://a.test/", "timeout_s": 31}, "must be below plugins.timeout_s, which is 30"),
    ],
)
def test_mistakes(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(**more)
    assert sentence in str(caught.value)
    assert "t0ken" not in str(caught.value)
