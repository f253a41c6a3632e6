"""A plugin that does each wrong thing at each hook, amid the mail of others: what becomes of the message at which it
does, of theirs, and who is named for it.

Each kind of misbehaviour has a real MTA, some share one; there, each hook has a message of its own (or a client, a
request, a reload), which meets it. Others hand in mail all the time, and try again until they have their 250.

Judged: of an acknowledged message there is one copy in the end, when the plugin behaves again and what was held is
released; before that one, or none and it is queued, deferred or held; of one that was never acknowledged, none (but for
answers that were lost). Mail of others is acknowledged and arrives in OTHERS_S, once. The log names plugin and hook,
`zonemta status` the plugin. The MTA takes mail afterwards, ends when it is told to, and its queue is healthy.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import resource
import signal
import smtplib
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ports import kept_port
from rich.console import Console
from rich.table import Table

from survival import misbehaves
from survival.misbehaves import ARMED, CLIENT, GARBAGE, KINDS
from survival.report import bar
from survival.rig import TOP, Mta
from zonemta_py.plugin.spec import HOOKS
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.sink.server import self_made

LIMIT_S = 1.0
MEMORY_LIMIT_S = 10.0
"""Where 2 GB are taken: some machines need seconds for that, and it is not to be one that blocks."""
OTHERS_S = 30.0
"""In which mail of others is acknowledged, and is there. A process that has died twice in a row pauses before the third
time."""
PATIENCE_S = 60.0
END_S = 30.0
TRIES = 12
MEMORY_BYTES = 8 << 30
"""Of address space, for each process."""
PLUGIN = "misbehaves"
PLACES = (*HOOKS, "task", "route", "command")
"""Where a plugin's code runs."""
BESIDES = ("task", "route", "command")
RELOADED = ("start", "stop", "smtp_init")
"""Hooks that are called when processes begin or end."""
ALONE = ("task", "smtp_connect", *RELOADED)
"""Nothing else misbehaves meanwhile; they come last, as tasks do not begin without `start`."""
DEADLY = ("exit", "segfault", "loop")
ENDLESS = ("swallow", "threads")
"""What a command that does it needs a person to end."""
GROUPS: tuple[tuple[str, ...], ...] = (
    ("raise", "return", "cancel", "keyboard", "sys_exit"), tuple(GARBAGE), ("sleep", "swallow", "swallow_once"),
    ("threads", "memory_bounded"), ("memory",), ("block",), ("exit",), ("segfault",), ("loop",),
)  # fmt: skip
"""Kinds that share an MTA."""
TOGETHER = {"block": 1, "threads": 1, "memory": 1, **dict.fromkeys(DEADLY, 1)}
"""How many cases run at a time; others 6."""
SAYS = {
    "raise": "raised RuntimeError: a fault", "return": "returned object", "cancel": "raised CancelledError",
    "keyboard": "raised KeyboardInterrupt", "sys_exit": "raised SystemExit", "sleep": "was cut off",
    "swallow": "was cut off", "swallow_once": "was cut off", "memory_bounded": "raised MemoryError",
    "exit": "", "segfault": "", "block": "blocked its process", "loop": "raised RuntimeError: the event loop",
    "memory": "has made its process grow by",
}  # fmt: skip
"""What the log says of a failure beside plugin and hook. Kinds that are not here are none, or not always: of threads it
says so when there are twice as many as when it last did."""
RULES = ("rcpt:/^gone-/ 550 5.1.1 nobody",)

_MORE = """
[[listeners]]
name = "login"
port = {login}
tls = "starttls"
certificate = "{certificate}"
auth = true
[http]
enabled = true
port = {http}
[plugins]
enabled = ["{plugin}"]
timeout_s = {limit_s}
[plugins.options.misbehaves]
folder = "{notes}"
limit_s = {limit_s}
[[event_sinks]]
name = "judge"
kind = "plugin"
plugin = "misbehaves"
timeout_s = {limit_s}
[[zones]]
name = "fresh"
recipient_domains = ["fresh.test"]
host = "127.0.0.1"
port = {sink}
tls = "none"
messages_per_connection = 1
{moody}
[[destinations]]
name = "delayed"
domains = ["moody.test"]
delay_notice_h = 0.0001
[learning]
initial = 100
"""
_MOODY = """
[[zones]]
name = "{name}"
recipient_domains = ["{name}.test"]
host = "127.0.0.1"
port = {port}
tls = "opportunistic"
"""
_PREFIXES = {
    "sender_response_error": "gone-", "queue_bounce": "gone-", "queue_retry": "later-", "queue_deferred": "later-",
    "queue_delayed": "late-", "message_refused": "refused-",
}  # fmt: skip
_DOMAINS = {
    "sender_connecting": "fresh.test", "sender_connect": "fresh.test", "sender_connected": "fresh.test",
    **dict.fromkeys(("queue_retry", "queue_deferred", "queue_delayed"), "moody.test"),
}  # fmt: skip


@dataclass
class Case:
    """A message at which one hook misbehaves. acknowledged: it had its 250. unknown: how many answers were lost.

    in_doubt: there is a copy too many, and the queue says that this may be. plain: recipient of a message at which
    nothing does. before: how things were while the plugin misbehaved: copies, states. broken: rules that were broken.
    """

    kind: str
    hook: str
    number: int
    times: int = 0
    plain: str = ""
    acknowledged: bool = False
    unknown: int = 0
    reply: str = ""
    reached: bool = False
    in_doubt: bool = False
    before: str = ""
    broken: list[str] = field(default_factory=list)

    @property
    def mark(self) -> str:
        return f"bad-{self.kind}-at-{self.hook}-{self.times}-{self.number}"

    @property
    def recipient(self) -> str:
        if self.plain:
            return self.plain
        local = f"plain-{self.number}" if self.hook == "smtp_reset" else self.mark
        return f"{_PREFIXES.get(self.hook, '')}{local}@{self.domain}"

    @property
    def domain(self) -> str:
        """That TLS fails at a site is learned: each kind that is to meet it has one of its own."""
        if self.hook == "sender_tls_error":
            return f"no-tls-{self.kind.replace('_', '-')}.test"
        return _DOMAINS.get(self.hook, "x.test")

    @property
    def sender(self) -> str:
        return f"{self.mark if self.hook in ('smtp_mail_from', 'queue_release') else f'judge-{self.number}'}@src.test"

    @property
    def bounces(self) -> bool:
        """Its recipient does not exist: the one copy is of the notification."""
        return self.recipient.startswith("gone-")

    def answered(self, reply: str) -> bool:
        """Notes an answer; whether there is no need to try again."""
        self.reply = reply
        self.acknowledged = reply.startswith("250")
        return self.acknowledged or reply[:1] == "5" or (reply[:3] == "451" and "plugin" in reply)


class Answer(Exception):
    """What a server said that is no 250."""


class Lost(Exception):
    """The connection ended. unknown: whether the message was under way."""

    def __init__(self, unknown: bool) -> None:
        super().__init__("lost")
        self.unknown = unknown


def hand_in(case: Case, port: int, login: int) -> str:
    """The last reply. Raises Lost."""
    sent = False
    secure = case.hook in ("smtp_auth", "smtp_sni")
    local = (CLIENT, 0) if case.hook == "smtp_connect" else None
    try:
        with closing(smtplib.SMTP(timeout=PATIENCE_S, source_address=local)) as client:
            _good(client.connect("127.0.0.1", login if secure else port))
            _good(client.ehlo(case.mark if case.hook == "smtp_end" else "client.test"))
            if secure:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                client._host = case.mark if case.hook == "smtp_sni" else "mta.test"  # type: ignore[attr-defined]
                _good(client.starttls(context=context))
                _good(client.ehlo("client.test"))
                client.user, client.password = case.mark, "secret"  # type: ignore[attr-defined]
                _good(client.auth("PLAIN", client.auth_plain))
            if case.hook == "smtp_reset":
                _good(client.mail(case.sender))
                _good(client.rcpt(f"{case.mark}@x.test"))
                _good(client.rset())
            _good(client.mail(case.sender))
            _good(client.rcpt(case.recipient, ["NOTIFY=DELAY"] if case.hook == "queue_delayed" else []))
            _good(client.docmd("DATA"))
            sent = True
            client.send(f"From: {case.sender}\r\nSubject: {case.mark}\r\n\r\nHello\r\n.\r\n")
            code, text = client.getreply()
            if case.hook == "smtp_end":
                with suppress(smtplib.SMTPException, OSError):
                    client.quit()
            return f"{code} {text.decode()}"
    except Answer as answer:
        return str(answer)
    except smtplib.SMTPResponseException as error:
        return f"{error.smtp_code} {error.smtp_error!r}"
    except (smtplib.SMTPException, OSError):
        raise Lost(sent) from None


def _good(reply: tuple[int, bytes]) -> None:
    code, text = reply
    if code >= 400 or code < 200:
        raise Answer(f"{code} {text.decode('utf-8', 'replace')}")


_PUT_OFF = {"later-": 1, "late-": 3}


class Moody(asyncio.Protocol):
    """A server that offers STARTTLS, and then speaks no TLS; without it, it takes everything, but some at the second or
    fourth try only."""

    def __init__(self, took: Callable[[str], object], tries: Counter[str]) -> None:
        self._tries = tries
        self._took, self._data, self._people, self._in_data = took, b"", list[str](), False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(b"220 broken.test\r\n")

    def data_received(self, data: bytes) -> None:
        self._data += data
        while b"\n" in self._data:
            line, _, self._data = self._data.partition(b"\n")
            self._transport.write(self._answer(line.strip(b"\r")))

    def _answer(self, line: bytes) -> bytes:
        if self._in_data:
            if line != b".":
                return b""
            self._in_data = False
            for one in self._people:
                self._took(one)
            return b"250 2.0.0 taken\r\n"
        word = line[:4].upper()
        if word == b"EHLO":
            return b"250-broken.test\r\n250 STARTTLS\r\n"
        if word == b"STAR":
            self._data = b""
            return b"220 go on\r\nthis is no TLS\r\n"
        if word == b"MAIL":
            self._people = []
        if word == b"RCPT":
            to = line.partition(b"<")[2].partition(b">")[0].decode()
            self._tries[to] += 1
            if self._tries[to] <= _PUT_OFF.get(f"{to.partition('-')[0]}-", 0):
                return b"450 4.2.1 not now\r\n"
            self._people.append(to)
        if word == b"DATA" and not self._people:
            return b"554 5.5.1 nobody\r\n"
        self._in_data = word == b"DATA"
        return b"354 go on\r\n" if self._in_data else b"221 bye\r\n" if word == b"QUIT" else b"250 2.0.0 ok\r\n"


class Others:
    """They hand in mail all the time. delays: from the first try on until it was there."""

    def __init__(self, port: int) -> None:
        self._port, self._over, self._number = port, False, 0
        self.acknowledged = dict[str, float]()
        """Recipients, and when their first try was."""
        self.unknown = set[str]()
        self.delays = dict[str, float]()
        self._working = [asyncio.create_task(self._work()) for _ in range(2)]

    async def _work(self) -> None:
        while not self._over:
            self._number += 1
            await self.one(f"other-{self._number}")
            await asyncio.sleep(0.1)

    async def one(self, name: str) -> None:
        """Returns when it has its 250."""
        begun = time.monotonic()
        for attempt in range(1000):
            recipient = f"{name}.{attempt}@x.test"
            case = Case("", "", 0, plain=recipient)
            try:
                if (await asyncio.to_thread(hand_in, case, self._port, 0)).startswith("250"):
                    self.acknowledged[recipient] = begun
                    return
            except Lost as lost:
                if lost.unknown:
                    self.unknown.add(recipient)
            if time.monotonic() > begun + 2 * PATIENCE_S:
                self.delays[recipient] = time.monotonic() - begun
                return
            await asyncio.sleep(0.1)

    def arrived(self, recipient: str) -> None:
        if recipient in self.acknowledged and recipient not in self.delays:
            self.delays[recipient] = time.monotonic() - self.acknowledged[recipient]

    async def end(self) -> None:
        self._over = True
        await asyncio.wait(self._working)


class Group:
    """Some kinds, with one MTA."""

    def __init__(self, folder: Path, cases: Iterable[tuple[str, str]], first: int = 0) -> None:
        """cases: kinds and places."""
        self.folder = folder
        self.cases = [Case(kind, place, first + at, _times(kind, place)) for at, (kind, place) in enumerate(cases)]
        self.kinds = tuple(dict.fromkeys(case.kind for case in self.cases))
        self.limit_s = MEMORY_LIMIT_S if "memory" in self.kinds else LIMIT_S
        self.notes = folder / "notes"
        self.copies = Counter[str]()
        self.broken = list[str]()
        self.figures = dict[str, Any]()
        self.mta: Mta
        self.http_port = self.login = 0

    async def run(self, done: Callable[[Case], None]) -> None:
        """Puts what it finds into `cases` and `broken`."""
        self.notes.mkdir(parents=True)
        certificate = self.folder / "certificate.pem"
        certificate.touch(0o600)
        certificate.write_bytes(self_made("mta.test"))
        loop = asyncio.get_running_loop()
        tries, zones = Counter[str](), ["moody"]
        zones += sorted({case.domain.removesuffix(".test") for case in self.cases if case.hook == "sender_tls_error"})
        kept = [kept_port() for _ in range(2)]
        self.login, self.http_port = (one.getsockname()[1] for one in kept)
        async with (
            AsyncExitStack() as servers,
            Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=RULES)) as sink,
        ):
            moody = ""
            for name in zones:
                server = await loop.create_server(lambda: Moody(self._took, tries), "127.0.0.1", 0)
                moody += _MOODY.format(name=name, port=server.sockets[0].getsockname()[1])
                await servers.enter_async_context(server)
            more = _MORE.format(
                login=self.login, certificate=certificate, http=self.http_port, plugin=self._plugin(),
                notes=self.notes, limit_s=self.limit_s, sink=sink.port, moody=moody,
            )  # fmt: skip
            self.mta = Mta(self.folder / "queue", sink.port, home=self.folder, more=more)
            _start(self.mta)
            taking = asyncio.create_task(self._take(sink))
            try:
                await self.mta.taking()
                assert await self._until((self.mta.folder / "http.token").exists, PATIENCE_S), self.mta.log_tail()
                self.others = Others(self.mta.port)
                await self._misbehave(done)
                await self._look()
                await self._behave()
            except (AssertionError, OSError) as error:
                self.broken.append(f"the MTA: {type(error).__name__} {error}")
            finally:
                taking.cancel()
                with suppress(AssertionError, subprocess.TimeoutExpired):
                    self.mta.end()
                for one in kept:
                    one.close()
        self.broken += [f"the queue: {one}" for one in await self.mta.problems()]

    def _plugin(self) -> Path:
        file = self.folder / f"{PLUGIN}.py"
        file.write_text(Path(misbehaves.__file__).read_text())
        return file

    def _took(self, recipient: str) -> None:
        self.copies[recipient] += 1
        if recipient.startswith("other-"):
            self.others.arrived(recipient)

    async def _take(self, sink: Sink) -> None:
        while True:
            messages = list(sink.messages)
            del sink.messages[: len(messages)]
            for message in messages:
                for recipient in message.recipients:
                    self._took(recipient)
            await asyncio.sleep(0.05)

    # -- the plugin misbehaves

    async def _misbehave(self, done: Callable[[Case], None]) -> None:
        places = asyncio.Semaphore(min(TOGETHER.get(kind, 6) for kind in self.kinds))

        async def one(case: Case) -> None:
            async with places:
                try:
                    async with asyncio.timeout(3 * PATIENCE_S):
                        await self._one(case)
                except TimeoutError:
                    case.broken.append("it has no end")
                done(case)

        alone = [case for case in self.cases if case.hook in ALONE]
        alone.sort(key=lambda case: ALONE.index(case.hook))
        await asyncio.gather(*(one(case) for case in self.cases if case not in alone))
        for case in alone:
            await one(case)

    async def _one(self, case: Case) -> None:
        armed = self.notes / f"armed-{case.hook}"
        if case.hook in ALONE:
            new = armed.with_suffix(".new")
            new.write_text(case.mark)
            new.rename(armed)
        if case.hook in RELOADED:
            try:
                await asyncio.to_thread(self._zonemta, "reload")
            except subprocess.TimeoutExpired:
                case.broken.append("zonemta reload does not end")
        elif case.hook == "command":
            status, said = await asyncio.to_thread(self._zonemta, "misbehave", case.mark)
            case.reply = f"exit status {status}"
            if case.kind in ("raise", "return", "garbage_none") and "Traceback" in said:
                case.broken.append(f"the command prints a traceback: {said[-200:]}")
        elif case.hook == "route":
            await self._tried(case, lambda: self._requested("GET", f"/v1/plugins/{PLUGIN}/do/{case.mark}"))
        elif case.hook == "api_mail":
            path = f"/v1/inject?sender={case.sender}&to={case.recipient}"
            await self._tried(case, lambda: self._requested("POST", path, b"Subject: hello\n\nHello\n"))
        elif case.hook == "task":
            await self._until(lambda: not armed.exists(), 10)
            await asyncio.sleep(0.2)
        else:
            await self._tried(case, lambda: hand_in(case, self.mta.port, self.login))
        if case.acknowledged:
            await self._settled(case)
        did = self.notes / f"did-{case.kind}-{case.hook}"
        case.reached = await self._until(did.exists, 10 if case.hook in ("stop", "event", "smtp_end") else 3)
        if case.hook in ARMED:
            await asyncio.sleep(2 * self.limit_s if case.hook in RELOADED else 0)
            armed.unlink(missing_ok=True)
            await self.others.one(f"other-after-{case.number}")

    async def _tried(self, case: Case, attempt: Callable[[], str]) -> None:
        for _ in range(TRIES if case.kind in DEADLY else 2):
            try:
                if case.answered(await asyncio.to_thread(attempt)):
                    return
            except Lost as lost:
                case.unknown += lost.unknown
                case.reply = "lost"
            await asyncio.sleep(0.3)

    def _requested(self, method: str, path: str, body: bytes | None = None) -> str:
        token = (self.mta.folder / "http.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "message/rfc822"}
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=PATIENCE_S)) as client:
                client.request(method, path, body, headers)
                answer = client.getresponse()
                said = answer.read().decode()
        except (OSError, http.client.HTTPException):
            raise Lost(body is not None) from None
        if answer.status == 200 and body is not None:
            return f"250 {said}"
        return f"451 {answer.status} {said}" if answer.status in (429, 500, 503) else f"555 {answer.status} {said}"

    async def _settled(self, case: Case) -> None:
        """Waits until it has arrived, is held, or has been put off again and again."""

        def over() -> bool:
            return bool(self._copies(case)) or any(one.startswith("held") for one in self._states(case))

        if not await self._until(over, 6 if case.kind in DEADLY else 3):
            states = await asyncio.to_thread(self._states, case)
            if not states and case.hook != "message_refused" and not await self._until(over, PATIENCE_S):
                case.broken.append("it is acknowledged and is nowhere")

    def _copies(self, case: Case) -> int:
        return self.copies[case.sender] if case.bounces else self.copies[case.recipient]

    def _states(self, case: Case) -> list[str]:
        """Of its recipient, while it is queued."""
        found: list[str] = []
        for who in {case.recipient, *([case.sender] if case.bounces else [])}:
            with suppress(ValueError, OSError):
                rows = self.mta.ask("list", recipient=who)["rows"]
                found += [f"{row['state']} {row.get('cause') or ''}".strip() for row in rows]
        return found

    async def _until(self, found: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not await asyncio.to_thread(found):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.1)
        return True

    def _zonemta(self, *arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "zonemta_py", *arguments, "--config", str(self.mta.config_file)]
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=TOP, stdin=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(TOP)},
        )  # fmt: skip
        return ran.returncode, ran.stdout + ran.stderr

    # -- afterwards

    async def _look(self) -> None:
        """What an operator sees of it."""
        await asyncio.to_thread(self._read_log)
        if any(kind in SAYS or kind == "threads" for kind in self.kinds):
            for words in (("status",), ("status", "--nagios")):
                _, said = await asyncio.to_thread(self._zonemta, *words)
                if f"plugin {PLUGIN}" not in " ".join(said.split()):
                    self.broken.append(f"{' '.join(words)} does not name the plugin: {said[:300]}")

    def _read_log(self) -> None:
        """In a thread: the sink has to answer meanwhile."""
        log = self.mta.log.read_text(errors="replace").splitlines()
        of_plugin = [one for one in log if f"plugin {PLUGIN}, hook " in one]
        for case in self.cases:
            self._judge(case)
            if case.hook == "command":
                continue
            if not case.reached:
                case.broken.append("its hook was not called")
            names = {"task": "task armed", "route": "http GET /do/{mark}"}
            named = re.compile(rf"hook {re.escape(names.get(case.hook, case.hook))}(?!\w)")
            lines = [one for one in of_plugin if named.search(one)]
            says = _says(case)
            if says is not None and not any(says in one for one in lines):
                case.broken.append("the log does not name plugin and hook")
        bad = [one for one in log if "internal error" in one or one.startswith("Traceback")]
        self.figures["tracebacks"] = len(bad)
        if bad:
            self.broken.append(f"the log has {len(bad)} tracebacks or internal errors, such as {bad[0][:200]}")
        if "threads" in self.kinds and not any("begins threads" in one for one in of_plugin):
            self.broken.append("the log does not name who has begun so many threads")

    def _judge(self, case: Case) -> None:
        copies, states = self._copies(case), self._states(case)
        case.before = f"{copies} copies; {'; '.join(states)[:120]}" if case.acknowledged else case.reply[:120]
        if case.acknowledged and not copies and not states:
            case.broken.append("it is acknowledged and is nowhere")

    async def _behave(self) -> None:
        """The plugin is corrected, what is held is released, and all of it arrives."""
        (self.notes / "tame").touch()
        with (self.folder / f"{PLUGIN}.py").open("a") as file:
            file.write("\n# corrected\n")
        status, said = await asyncio.to_thread(self._zonemta, "reload")
        if status:
            self.broken.append(f"reload exits with {status}: {said[-300:]}")
        await asyncio.to_thread(self._zonemta, "queue", "release", "--all")
        await self.others.one("other-afterwards")
        await self.others.end()
        await self.mta.drained()
        await asyncio.sleep(0.5)
        doubtful = set(await asyncio.to_thread(self.mta.in_doubt))
        for case in self.cases:
            copies = self._copies(case)
            most = case.acknowledged + case.unknown
            if copies < case.acknowledged:
                case.broken.append("it is lost")
            case.in_doubt = copies > most and case.recipient in doubtful
            if copies > most and not case.in_doubt and case.hook not in BESIDES:
                case.broken.append(
                    f"there are {copies} copies, of {case.acknowledged} + {case.unknown} that were taken"
                )
        for recipient in self.others.acknowledged:
            count = self.copies[recipient]
            if not count or (count > 1 and recipient not in doubtful):
                self.broken.append(f"of <{recipient}> there are {count} copies")
        longest = max(self.others.delays.values(), default=0.0)
        self.figures |= {"others": len(self.others.acknowledged), "longest_s": round(longest, 1)}
        if longest > OTHERS_S:
            self.broken.append(f"mail of others took {longest:.1f} s")
        self.mta.stop()
        begun = time.monotonic()
        try:
            status = await asyncio.to_thread(self.mta.waited, END_S)
            if status not in (0, -signal.SIGTERM):
                self.broken.append(f"the MTA ends with {status}")
        except subprocess.TimeoutExpired:
            self.broken.append(f"the MTA does not end within {END_S:g} s")
        self.figures["ends_s"] = round(time.monotonic() - begun, 1)


def _start(mta: Mta) -> None:
    """No process may have more than MEMORY_BYTES, whatever a plugin asks for."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, limits[1]))
    try:
        mta.start()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _says(case: Case) -> str | None:
    """What the log says beside plugin and hook; None: it need not."""
    waits = case.hook in HOOKS and not HOOKS[case.hook].waits
    if waits and case.kind in ("sleep", "swallow", "swallow_once"):
        return "must return at once"
    if case.hook == "task" and case.kind in ("sleep", "swallow", "swallow_once"):
        return None  # a task may wait for as long as it likes
    return SAYS.get(case.kind)


def _times(kind: str, place: str) -> int:
    """A hook that blocks all the time is skipped, and an event is tried until it is taken."""
    return 1 if kind in ("block", "memory", "memory_bounded") else 2 if place == "event" else 0


async def trial(
    folder: Path, groups: Iterable[tuple[str, ...]], places: Iterable[str], done: Callable[[Case], None]
) -> list[Group]:
    """Runs them, one after the other."""
    ran, first = list[Group](), 0
    for number, kinds in enumerate(groups):
        cases = [(kind, place) for kind in kinds for place in places if place != "command" or kind not in ENDLESS]
        group = Group(folder / f"{number}-{kinds[0]}", cases, first)
        first += len(group.cases)
        ran.append(group)
        await group.run(done)
    return ran


def broken(groups: Iterable[Group]) -> list[str]:
    """A sentence for each rule that was broken."""
    found = list[str]()
    for group in groups:
        found += [f"{', '.join(group.kinds)}: {one}" for one in group.broken]
        for case in group.cases:
            found += [f"{case.kind} at {case.hook}: {one} ({case.before})" for one in case.broken]
    return found


def _main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/trials/plugin_misbehaviour", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="repeatable; default: all")
    parser.add_argument("--place", action="append", choices=PLACES, help="hook, task, route or command; default: all")
    parser.add_argument("--folder", type=Path, help="where queues live; default: a new one under /tmp, kept")
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")
    options = parser.parse_args()
    places = tuple(options.place or PLACES)
    wanted = options.kind or KINDS
    groups = [found for one in GROUPS if (found := tuple(kind for kind in one if kind in wanted))]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zonemta-misbehaviour-"))
    console = Console(stderr=options.json)
    console.print(f"queues and logs in {folder}")
    count = 0
    with bar(console, "cases", len(places) * sum(map(len, groups))) as advance:

        def done(case: Case) -> None:
            nonlocal count
            count += 1
            advance(count, f"{case.kind} at {case.hook}")

        ran = asyncio.run(trial(folder, groups, places, done))
    found = broken(ran)
    if options.json:
        rows = [vars(case) for group in ran for case in group.cases]
        print(json.dumps({"cases": rows, "groups": [one.figures for one in ran], "broken": found}, indent=1))
    else:
        _print(console, ran, found)
    return 1 if found else 0


def _print(console: Console, ran: list[Group], found: list[str]) -> None:
    table = Table(
        "kind", "places", "acknowledged", "refused", "held or deferred", "held all rules", title="Misbehaviour"
    )
    for group in ran:
        by_kind = defaultdict[str, list[Case]](list)
        for case in group.cases:
            by_kind[case.kind].append(case)
        for kind, cases in by_kind.items():
            waits = sum(case.acknowledged and case.before.startswith("0 copies") for case in cases)
            table.add_row(
                kind, str(len(cases)), str(sum(case.acknowledged for case in cases)),
                str(sum(case.reply[:1] in ("4", "5") for case in cases)), str(waits),
                str(sum(not case.broken for case in cases)),
            )  # fmt: skip
    console.print(table)
    for group in ran:
        console.print(f"{', '.join(group.kinds)}: {group.figures}")
    for line in found:
        console.print(f"[red]broken[/red] {line}", highlight=False)
    if not found:
        console.print("[green]survived[/green]")


if __name__ == "__main__":
    sys.exit(_main())
