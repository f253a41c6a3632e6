"""A real MTA with the plugin under test: its queue, a receiver and a sender as processes of their own, and the sink as
the destination of all its mail. It is on loopback only, in a folder that is removed when it ends.

Failures: MtaNotStarted with what the server has said, where a plugin does not load, say; an AssertionError where what a
test waits for does not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import random
import re
import smtplib
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, TypeVar

from zonemta_py.config import as_toml
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.testing.builders import SHOP
from zonemta_py.queue import questions
from zonemta_py.sink import ReceivedMessage, Sink, SinkOptions
from zonemta_py.sink.server import self_made
from zonemta_py.wire.blocking_client import QueueGone, ask

HOST, LISTENER, MAIL = "127.0.0.1", "smtp", b"Subject: hello\r\n\r\nHello!\r\n"
PATIENCE_S = 30.0
"""How long what comes by itself is waited for."""
_END_S, _LOOK_S, _HTTP_S = 10.0, 0.01, 5.0
_STATES = ("queued", "leased", "deferred", "held")
_PORTS = range(20_000, 32_000)
_Found = TypeVar("_Found")
_QUEUED_AS = re.compile(r"queued as (\w+)")


class MtaNotStarted(Exception):
    """The server has ended, or does not answer; with the end of its log."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What a client hears. reply: to the message, or to whatever was refused before: to RCPT if no recipient was taken.
    id: of the message in the queue, "" if there is none. refused: recipients that were refused at RCPT."""

    reply: Reply
    id: str = ""
    refused: dict[str, Reply] = field(default_factory=dict)

    @property
    def code(self) -> int:
        return self.reply.code


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message at its destination. body: what follows the header. parameters: of MAIL, then of each recipient.
    helo: the name that the sender had in EHLO. tls: "" or "TLSv1.3 TLS_AES_256_GCM_SHA384"."""

    sender: str
    recipients: list[str]
    headers: Headers
    body: bytes
    parameters: list[str]
    helo: str
    tls: str

    @classmethod
    def of(cls, one: ReceivedMessage) -> Arrived:
        section, _, body = one.body.partition(b"\r\n\r\n")
        headers = Headers.parse(section + b"\r\n")
        return cls(one.sender, list(one.recipients), headers, body, list(one.parameters), one.helo, one.tls)


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Of HTTP. headers: with lower-case names."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Mta:
    """What `running` gives. port: where mail is handed in. http_port: where HTTP is served, with `http`; else 0. sink:
    all that has arrived (`sink.messages`), and what it counts. config_file: what the server was started with."""

    def __init__(
        self, sink: Sink, ports: Mapping[str, int], home: Path, certificate: Path | None, http_port: int = 0
    ) -> None:  # fmt: skip
        self.sink, self.port, self._ports, self.http_port = sink, ports[LISTENER], ports, http_port
        self.config_file = home / "zonemta.toml"
        self._folder, self._log = home / "queue", home / "log"
        self._certificate = certificate
        self._process: subprocess.Popen[bytes] | None = None
        self._seen = set[tuple[int, str]]()

    @property
    def log(self) -> str:
        """All lines that the server has logged until now."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    async def send(
        self,
        *recipients: str,
        message: bytes | EmailMessage = MAIL,
        sender: str = SHOP,
        login: tuple[str, str] | None = None,
        mail_parameters: Sequence[str] = (),
        listener: str = LISTENER,
    ) -> Submitted:
        """Hands a message in by SMTP, as a client does. login: user and password, for an MTA with `auth`.

        mail_parameters: what goes with MAIL, as "MT-PRIORITY=3". listener: one of `listeners`. Raises OSError if the
        server hangs up.
        """
        if isinstance(message, EmailMessage):
            message = message.as_bytes(policy=policy.SMTP)
        port, more = self._ports[listener], list(mail_parameters)
        return await asyncio.to_thread(self._send, port, recipients, message, sender, login, more)

    def _send(
        self, port: int, recipients: Sequence[str], message: bytes, sender: str, login: tuple[str, str] | None,
        more: list[str],
    ) -> Submitted:  # fmt: skip
        try:
            client = smtplib.SMTP(HOST, port, "client.example.com", PATIENCE_S)
        except smtplib.SMTPConnectError as error:
            return Submitted(_reply(error.smtp_code, error.smtp_error))
        with client:
            client.ehlo()
            if self._certificate is not None:
                client.starttls(context=ssl.create_default_context(cafile=self._certificate))
                client.ehlo()
            if login:
                try:
                    client.login(*login)
                except smtplib.SMTPResponseException as error:
                    return Submitted(_reply(error.smtp_code, error.smtp_error))
            code, text = client.mail(sender, more)
            if code >= 400:
                return Submitted(_reply(code, text))
            answers = {one: _reply(*client.rcpt(one)) for one in recipients}
            refused = {one: reply for one, reply in answers.items() if not reply.positive}
            if len(refused) == len(answers):
                return Submitted(next(iter(refused.values()), Reply(554, "", "no recipients")), refused=refused)
            try:
                reply = _reply(*client.data(message))
            except smtplib.SMTPDataError as error:  # at DATA, before the message
                reply = _reply(error.smtp_code, error.smtp_error)
            queued = _QUEUED_AS.search(reply.text) if reply.positive else None
            return Submitted(reply, queued[1] if queued else "", refused)

    async def http(
        self, method: str, path: str, body: Any = None, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpReply:
        """A request, of an MTA with `http`. body: bytes, or what JSON knows. key: default: one that may do everything;
        "": none. Raises OSError if there is no answer."""
        sent = {} if headers is None else dict(headers)
        if key is None:
            key = (self._folder / "http.token").read_text().strip()
        if key:
            sent["Authorization"] = f"Bearer {key}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} | sent
        return await asyncio.to_thread(self._http, method, path, body, sent)

    def _http(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> HttpReply:
        with contextlib.closing(http.client.HTTPConnection(HOST, self.http_port, timeout=PATIENCE_S)) as client:
            client.request(method, path, body, headers)
            answer = client.getresponse()
            return HttpReply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    async def arrived(self, recipient: str, within_s: float = PATIENCE_S, at: Sink | None = None) -> Arrived:
        """The next message for that recipient: each once, in the order in which they arrived. at: another destination
        than the server's own. Raises AssertionError."""
        sink = at or self.sink

        def look() -> Arrived | None:
            for one in sink.messages:
                if recipient in one.recipients and (id(one), recipient) not in self._seen:
                    self._seen.add((id(one), recipient))
                    return Arrived.of(one)
            return None

        found = await self._came(look, within_s, f"nothing has arrived for {recipient}")
        assert found is not None
        return found

    async def logged(self, words: str, within_s: float = PATIENCE_S) -> str:
        """The first line of the log with these words; waits for it. Raises AssertionError."""

        def look() -> str:
            return next((line for line in self.log.splitlines() if words in line), "")

        return await self._came(look, within_s, f"nothing is logged with {words!r}")

    async def idle(self, within_s: float = PATIENCE_S) -> None:
        """Waits until all mail has arrived, has come to another end, or is put off or held. Raises AssertionError."""
        end = time.monotonic() + within_s
        while (now := await self.size())["queued"] or now["leased"]:
            if time.monotonic() > end:
                raise AssertionError(f"mail is still under way after {within_s:g} s; {self._tail()}")
            await asyncio.sleep(_LOOK_S)

    async def size(self) -> dict[str, int]:
        """How many recipients are queued, leased, deferred and held."""
        found: Any = await asyncio.to_thread(ask, self._folder, questions.size)
        return {state: found["total"][state] for state in _STATES}

    async def trace(self, what: str) -> list[dict[str, Any]]:
        """What became of a message, by its id, or of all mail to an address: the rows of `zonemta trace --json`."""
        rows: list[dict[str, Any]] = json.loads(await self.zonemta("trace", what, "--json"))["rows"]
        return rows

    async def zonemta(self, *words: str) -> str:
        """What a command of an operator prints, as `zonemta("explain", "anna@example.com")`.

        Raises AssertionError, with what it has said, if it fails.
        """
        command = [sys.executable, "-m", "zonemta_py", *words, "--config", str(self.config_file)]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S)
        if ran.returncode:
            raise AssertionError(f"zonemta {' '.join(words)} exits with {ran.returncode}: {ran.stdout}{ran.stderr}")
        return ran.stdout

    async def start(self) -> None:
        """Waits until it takes mail. Raises MtaNotStarted."""
        command = [sys.executable, "-m", "zonemta_py", "run", "--config", str(self.config_file)]
        with self._log.open("ab") as log:
            self._process = await asyncio.to_thread(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE_S
        while not await asyncio.to_thread(self._is_taking):
            if self._process.poll() is not None:
                raise MtaNotStarted(f"the server has ended; {self._tail()}")
            if time.monotonic() > end:
                raise MtaNotStarted(f"the server takes no mail after {PATIENCE_S:g} s; {self._tail()}")
            await asyncio.sleep(_LOOK_S)

    def _is_taking(self) -> bool:
        """Clients are greeted before the queue is there, and wait for it."""
        try:
            ask(self._folder, questions.size)
            if self.http_port:
                with contextlib.closing(http.client.HTTPConnection(HOST, self.http_port, timeout=_HTTP_S)) as web:
                    web.request("GET", "/v1/health")
                    web.getresponse().read()
            with socket.create_connection((HOST, self.port), PATIENCE_S) as client:
                return bool(client.recv(1))  # whatever is said: a plugin may refuse us
        except (OSError, QueueGone, ValueError):
            return False

    async def stop(self) -> None:
        """What has begun may end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def _came(self, look: Callable[[], _Found], within_s: float, otherwise: str) -> _Found:
        end = time.monotonic() + within_s
        while not (found := look()):
            if time.monotonic() > end:
                raise AssertionError(f"{otherwise} after {within_s:g} s; {self._tail()}")
            await asyncio.sleep(_LOOK_S)
        return found

    def _tail(self) -> str:
        return "its log ends:\n" + "\n".join(self.log.splitlines()[-15:])


@contextlib.asynccontextmanager
async def running(
    *plugins: str | Path,
    options: Mapping[str, Any] | None = None,
    config: str = "",
    zones: Iterable[str] = ("default",),
    replies: Sequence[str] = (),
    auth: bool = False,
    listeners: Iterable[str] = (),
    http: bool = False,
) -> AsyncIterator[Mta]:
    """A server with these plugins (paths of their files, or names), which ends with the block.

    options: of the first one. config: more of a configuration file, which counts before what is said here; zones
    without `host` send to the sink. zones: their names, the first is the default. replies: of the sink, as
    "rcpt:/^full-/ 452 4.2.2 Mailbox full" (`zonemta sink --help`). auth: clients may log in, under TLS.
    listeners: names of more of them beside "smtp", for `send`. http: the HTTP interface is there (`Mta.http`). What is
    put off is tried again after half a second. Raises MtaNotStarted.
    """
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zonemta-")))
        ports = {one: stack.enter_context(_kept_port()).getsockname()[1] for one in (LISTENER, *listeners)}
        http_port = stack.enter_context(_kept_port()).getsockname()[1] if http else 0
        settings = SinkOptions(listen=(f"{HOST}:0",), keep=True, rules=tuple(replies))
        async with Sink(settings) as sink:
            certificate = _certificate(home) if auth else None
            mta = Mta(sink, ports, home, certificate, http_port)
            given = _configured(plugins, options or {}, tuple(zones), home, ports, certificate)
            if http:
                given["http"] = {"enabled": True, "port": http_port, "metrics": "open"}
            mta.config_file.write_text(_merged(given, tomllib.loads(config), sink.port))
            try:
                await mta.start()
                yield mta
            finally:
                await mta.stop()


def _certificate(home: Path) -> Path:
    file = home / "certificate.pem"
    file.touch(0o600)
    file.write_bytes(self_made("mta.test"))
    return file


def _configured(
    plugins: Sequence[str | Path],
    options: Mapping[str, Any],
    zones: Sequence[str],
    home: Path,
    ports: Mapping[str, int],
    certificate: Path | None,
) -> dict[str, Any]:
    of_all: dict[str, Any] = {}
    if certificate is not None:
        of_all |= {"tls": "starttls", "certificate": str(certificate), "auth": True}
    enabled = [str(one) if _is_name(one) else str(Path(one).absolute()) for one in plugins]
    return {
        "server": {"hostname": "mta.test", "folder": str(home / "queue"), "receivers": 1, "senders": 1},
        "listeners": [{"name": name, "port": port, **of_all} for name, port in ports.items()],
        "retry": {"schedule_min": [0.01], "down_s": 0.2, "down_max_s": 0.5},
        "queue": {"segment_bytes": 262_144, "write_buffer_bytes": 262_144, "reserve_bytes": 0},
        "zones": [{"name": one, "default": one == zones[0]} for one in zones],
        "plugins": {"enabled": enabled, "options": {Path(enabled[0]).stem: dict(options)} if options else {}},
    }


def _is_name(plugin: str | Path) -> bool:
    return isinstance(plugin, str) and "/" not in plugin and not plugin.endswith(".py")


def _merged(given: dict[str, Any], more: dict[str, Any], sink: int) -> str:
    """As TOML: `more` over `given`, table by table."""
    whole = _over(given, more)
    for zone in whole["zones"]:
        if not {"host", "hosts"} & zone.keys():
            zone |= {"host": HOST, "port": sink, "tls": zone.get("tls", "none")}
    return "".join(f"{as_toml.key(name)} = {as_toml.value(value)}\n" for name, value in whole.items())


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _over(below[name], value) if isinstance(value, dict) and isinstance(below.get(name), dict) else value
        for name, value in above.items()
    }
    return below | both


def _reply(code: int, text: bytes | str) -> Reply:
    lines = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text).splitlines()
    return Reply.from_lines(code, lines or [""])


def _kept_port() -> socket.socket:
    """Has a port that nobody else gets while it is open, and on which the server listens beside it. Below those that
    connections take. Raises OSError: none is free."""
    for port in random.sample(_PORTS, 100):
        kept = socket.socket()
        try:
            with socket.socket() as probe:  # without SO_REUSEPORT: somebody else's is taken
                probe.bind((HOST, port))
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            kept.bind((HOST, port))
        except OSError:
            kept.close()
        else:
            return kept
    raise OSError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free; end what listens there")
