"""DANE and MTA-STS with a real name server (nsd), a real validating resolver (unbound), and real certificates.

`zonemta tls check` goes the way of a delivery up to the banner: DNS, policies, handshake.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import smtplib
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from dns_servers import DnsServers
from ports import free_port
from survival.rig import Mta

from zonemta_py.delivery.tls import dane
from zonemta_py.sink import Sink, SinkOptions
from zonemta_py.sink.server import self_made

PATIENCE_S = 60
MX_ADDRESS, POLICY_ADDRESS = "127.0.0.5", "127.0.0.6"
_RECORDS = f"""
@ IN MX 10 mx
mx IN A {MX_ADDRESS}
mta-sts IN A {POLICY_ADDRESS}
"""
_REPORTS = '_smtp._tls IN TXT "v=TLSRPTv1; rua=mailto:tls@{name}"\n'
_STS = '_mta-sts IN TXT "v=STSv1; id=1;"\n'


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Path:
    made = tmp_path_factory.mktemp("tls")
    authority.cert_pem.write_to_path(made / "ca.pem")
    return made


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()


@pytest.fixture(scope="module")
def mx(folder: Path, loop: asyncio.AbstractEventLoop) -> Iterator[tuple[Sink, str]]:
    """A server for mx.*.test whose authority nobody knows, and the TLSA digest of its key."""
    leaf = trustme.CA().issue_cert("mx.dane.test", "mx.wrong.test")
    leaf.private_key_and_cert_chain_pem.write_to_path(folder / "mx.pem")
    sink = Sink(
        SinkOptions(
            (f"{MX_ADDRESS}:0",), capabilities=("STARTTLS", "REQUIRETLS"), certificate=folder / "mx.pem", keep=True
        )
    )
    asyncio.run_coroutine_threadsafe(sink.__aenter__(), loop).result()
    key = dane.key_of(ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode()))
    yield sink, hashlib.sha256(key).hexdigest()
    asyncio.run_coroutine_threadsafe(sink.__aexit__(None, None, None), loop).result()


@pytest.fixture(scope="module")
def policy_port(authority: trustme.CA, loop: asyncio.AbstractEventLoop) -> Iterator[int]:
    """Policy hosts for all these domains: in force, for their own MX."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("mta-sts.sts.test", "mta-sts.dane.test").configure_cert(context)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"version: STSv1\nmode: enforce\nmx: mx.sts.test\nmx: mx.dane.test\nmax_age: 86400\n"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, POLICY_ADDRESS, 0, ssl=context)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield int(server.sockets[0].getsockname()[1])
    loop.call_soon_threadsafe(server.close)


@pytest.fixture(scope="module")
def names(dns_servers: Callable[..., DnsServers], mx: tuple[Sink, str]) -> DnsServers:
    """dane.test, wrong.test: signed, with TLSA; plain.test: with TLSA, unsigned; bogus.test; sts.test; bare.test."""
    sink, digest = mx
    right, wrong = (f"_{sink.port}._tcp.mx IN TLSA 3 1 1 {data}\n" for data in (digest, "00" * 32))

    def zones(**more: str) -> dict[str, str]:
        return {f"{name}.test": _RECORDS + _REPORTS.format(name=f"{name}.test") + own for name, own in more.items()}

    return dns_servers(
        zones(dane=_STS + right, wrong=_STS + wrong),
        unsigned=zones(plain=_STS + wrong, sts=_STS, bare=""),
        bogus=zones(bogus=_STS + right),
    )


@pytest.fixture
def check(
    names: DnsServers, mx: tuple[Sink, str], policy_port: int, tmp_path: Path, folder: Path
) -> Callable[..., Any]:
    """Runs `zonemta tls check DOMAIN`: exit code, and its JSON or what it said on stderr."""

    def run(domain: str, sts: bool = False) -> tuple[int, Any]:
        config = tmp_path / "zonemta.toml"
        config.write_text(
            f'[server]\nfolder = "{tmp_path}"\nhostname = "mta.test"\n'
            f'[dns]\nservers = ["127.0.0.1"]\nport = {names.port}\ndnssec = true\n'
            f'[tls]\nca_file = "{folder}/ca.pem"\ndane = true\n'
            f"mta_sts = {str(sts).lower()}\nmta_sts_port = {policy_port}\n"
            f'[[zones]]\nname = "z"\nport = {mx[0].port}\nallow_private = true\n'
        )
        command = [sys.executable, "-m", "zonemta_py", "tls", "check", domain, "--json", "-c", config]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 2)
        return ran.returncode, json.loads(ran.stdout) if ran.stdout else ran.stderr

    return run


def test_dane(check: Any) -> None:
    """The certificate of an authority that nobody knows is good, since a signed TLSA record names its key."""
    code, found = check("dane.test")
    [row] = found["hosts"]
    assert (code, row["host"]) == (0, "mx.dane.test")
    assert row["delivers"].endswith(" verified=dane")
    assert row["certificate"] != "valid"
    assert "Reports wanted: mailto:tls@dane.test" in found["notes"]


def test_dane_names_another_key(check: Any) -> None:
    """A signed record that names another key: no mail goes there."""
    code, found = check("wrong.test")
    assert code == 1
    assert "TLSA records" in found["hosts"][0]["delivers"]


def test_unsigned_records_do_not_count(check: Any) -> None:
    """Without DNSSEC the same record is as good as none: whoever can forge it could leave it out."""
    code, found = check("plain.test")
    assert code == 0
    assert found["hosts"][0]["delivers"].endswith(" verified=none")


def test_forged_answers(check: Any) -> None:
    """A zone whose signatures are not by the key that is known: nothing of it is believed, mail waits."""
    code, said = check("bogus.test")
    assert code == 69
    assert "no route to bogus.test" in said


def test_mta_sts(check: Any) -> None:
    """Policy found by DNS, fetched over HTTPS, in force: a certificate that is not valid gets no mail."""
    code, found = check("sts.test", sts=True)
    assert code == 1
    assert found["hosts"][0]["policy"] == "MTA-STS, enforce"
    assert check("sts.test")[0] == 0


def test_dane_over_mta_sts(check: Any) -> None:
    """Where both are there DANE decides (RFC 8461 2)."""
    code, found = check("dane.test", sts=True)
    assert code == 0
    assert found["hosts"][0]["delivers"].endswith(" verified=dane")


def test_collected_and_reported(names: DnsServers, mx: tuple[Sink, str], tmp_path: Path) -> None:
    """What a running MTA met is in the journal, and in the day's report: DANE that holds, and DANE that does not."""
    more = (
        f'[dns]\nservers = ["127.0.0.1"]\nport = {names.port}\ndnssec = true\n[tls]\ndane = true\nreports = true\n'
        f'[[zones]]\nname = "direct"\nrecipient_domains = ["dane.test", "wrong.test"]\nport = {mx[0].port}\n'
        "allow_private = true\n"
    )
    mta = Mta(tmp_path / "queue", mx[0].port, home=tmp_path, more=more)
    command = [sys.executable, "-m", "zonemta_py"]
    today = str(datetime.datetime.now(datetime.UTC).date())
    mta.start()
    try:
        asyncio.run(mta.accepting())
        with smtplib.SMTP("127.0.0.1", mta.port) as client:
            client.sendmail("a@b.test", ["r@dane.test", "r@wrong.test"], b"Subject: x\r\n\r\nx\r\n")
        report = [*command, "tls", "report", "--json", "-c", mta.config_file, "--day", today]
        good, bad = _when(lambda bodies: len(bodies) == 2, report, mta)
    finally:
        mta.end()
    assert _summary(good) == ("tlsa", "dane.test", 1, 0)
    assert _summary(bad)[:3] == ("tlsa", "wrong.test", 0)
    assert _summary(bad)[3] >= 1
    [failure] = bad["policies"][0]["failure-details"]
    assert (failure["result-type"], failure["receiving-mx-hostname"]) == ("validation-failure", "mx.wrong.test")
    dump = [*command, "journal", "dump", "--archive", "-c", mta.config_file]
    assert "verified=dane" in subprocess.run(dump, capture_output=True, text=True, check=True).stdout


def _when(enough: Callable[[Any], bool], command: list[Any], mta: Mta) -> Any:
    """The command's JSON, once it says enough."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        if enough(bodies := json.loads(ran.stdout)):
            return bodies
        time.sleep(0.2)
    raise AssertionError(mta.log_tail())


def _summary(body: Any) -> tuple[str, str, int, int]:
    [policy] = body["policies"]
    counts = policy["summary"]
    return (
        policy["policy"]["policy-type"], policy["policy"]["policy-domain"],
        counts["total-successful-session-count"], counts["total-failure-session-count"],
    )  # fmt: skip


def test_requiretls(names: DnsServers, mx: tuple[Sink, str], tmp_path: Path) -> None:
    """DNSSEC vouches for the MX of one domain, and DANE for its certificate: delivered. Nothing does for the other's:
    returned, with the header alone and under TLS again (RFC 8689 4.2.1, 5)."""
    sink = mx[0]
    (tmp_path / "own.pem").write_bytes(self_made("mta.test"))
    port = free_port()
    more = (
        f'[dns]\nservers = ["127.0.0.1"]\nport = {names.port}\ndnssec = true\n[tls]\ndane = true\n'
        f'[[zones]]\nname = "direct"\nrecipient_domains = ["*.test"]\nport = {sink.port}\nallow_private = true\n'
        f'[[listeners]]\nname = "tls"\nport = {port}\ntls = "starttls"\ncertificate = "{tmp_path}/own.pem"\n'
    )
    mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more)
    mta.start()
    try:
        asyncio.run(mta.accepting())
        with smtplib.SMTP("127.0.0.1", port) as client:
            client.starttls()
            message, options = b"Subject: secret\r\n\r\nthe body\r\n", ["REQUIRETLS", "RET=FULL"]
            client.sendmail("back@dane.test", ["req@dane.test", "req@bare.test"], message, options)
        _until(lambda: len(_to(sink, "req@dane.test")) == len(_to(sink, "back@dane.test")) == 1, mta)
    finally:
        mta.end()
    [notice] = _to(sink, "back@dane.test")
    assert b"550 5.7.10 REQUIRETLS cannot be met: neither DNSSEC nor MTA-STS" in notice.replace(b"\r\n ", b" ")
    assert b"Subject: secret" in notice
    assert b"the body" not in notice
    assert _to(sink, "req@bare.test") == []


def _to(sink: Sink, recipient: str) -> list[bytes]:
    return [message.body for message in list(sink.messages) if recipient in message.recipients]


_TOMORROW = """
import sys, time
from pathlib import Path
from zonemta_py.processes import supervisor
from zonemta_py.config import load
began, fixed = time.time(), float(sys.argv[2])
supervisor.run(load(Path(sys.argv[1])), clock=lambda: fixed + time.time() - began)
"""


def test_reported_once_a_day(names: DnsServers, mx: tuple[Sink, str], tmp_path: Path) -> None:
    """The next day a running MTA sends its reports to those who ask for them: once, though all of it is killed then."""
    sink = mx[0]
    more = (
        f'[dns]\nservers = ["127.0.0.1"]\nport = {names.port}\ndnssec = true\n[tls]\ndane = true\nreports = true\n'
        f'[[zones]]\nname = "direct"\nrecipient_domains = ["dane.test", "plain.test"]\nport = {sink.port}\n'
        "allow_private = true\n"
    )
    mta = Mta(tmp_path / "queue", sink.port, home=tmp_path, more=more)
    reported = tmp_path / "queue" / "tls" / "reported"
    today = datetime.datetime.now(datetime.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    mta.start()
    try:
        asyncio.run(mta.accepting())
        with smtplib.SMTP("127.0.0.1", mta.port) as client:
            client.sendmail("a@b.test", ["r@dane.test", "r@plain.test"], b"Subject: x\r\n\r\nx\r\n")
        asyncio.run(mta.drained())  # at the sink is not enough: killed before it is in the journal, it never was
        mta.end()
        mta.program = ["-c", _TOMORROW, str(mta.config_file), str(today.timestamp() + 30 * 3600)]
        for _ in range(2):
            mta.start()
            asyncio.run(mta.accepting())
            _until(lambda: reported.exists() and reported.read_text().endswith("\n.\n"), mta)
            _until(lambda: len(_reports(sink)) >= 2, mta)
            asyncio.run(mta.drained())
            mta.end()
    finally:
        mta.end()
    assert sorted(_reports(sink)) == ["tls@dane.test", "tls@plain.test"]
    assert reported.read_text() == f"{today.date()}\ndane.test\nplain.test\n.\n"
    assert "Traceback" not in mta.log.read_text()


def _reports(sink: Sink) -> list[str]:
    return [to for message in list(sink.messages) for to in message.recipients if to.startswith("tls@")]


def _until(holds: Callable[[], bool], mta: Mta) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, mta.log_tail()
        time.sleep(0.05)
