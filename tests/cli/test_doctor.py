"""`zonemta doctor` against a real name server and real ports on loopback: each thing that is wrong is said, with what
to do, and what is right is not complained of."""

from __future__ import annotations

import asyncio
import json
import socket
import socketserver
import ssl
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import dns.rrset
import pytest
import trustme
from ports import free_port

from zonemta_py.cli.service import machine
from zonemta_py.cli.service.diagnosis import Level, note, ok, warning
from zonemta_py.cli.service.doctor import HELLO, reached, unanswered
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.config import Config

Zonemta = Callable[..., Any]
ADDRESS, BACKWARDS = "8.1.2.3", "3.2.1.8"


class Records(socketserver.ThreadingUDPServer):
    """all: (name, kind) → values, as a zone file has them; a name in `silent` is SERVFAIL."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.all: dict[tuple[str, str], list[str]] = {}
        self.silent: set[str] = set()


class _Answer(socketserver.BaseRequestHandler):
    server: Records

    def handle(self) -> None:
        data, sock = self.request
        query = dns.message.from_wire(data)
        response, question = dns.message.make_response(query), query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        values = self.server.all.get((name, kind))
        if name in self.server.silent:
            response.set_rcode(dns.rcode.SERVFAIL)
        elif values:
            response.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, *values))
        elif not any(known == name for known, _ in self.server.all):
            response.set_rcode(dns.rcode.NXDOMAIN)
        sock.sendto(response.to_wire(), self.client_address)


@pytest.fixture
def records() -> Iterator[Records]:
    with Records() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def doctor(tmp_path: Path, records: Records, zonemta: Zonemta) -> Callable[..., dict[str, dict[str, str]]]:
    """doctor("--domain", …) → findings by what they are about, and the exit status as `status`."""
    file = tmp_path / "zonemta.toml"

    def run(*arguments: str, more: str = "", port: int = 0) -> dict[str, dict[str, str]]:
        file.write_text(
            f'[server]\nhostname = "mail.d.example"\nfolder = "{tmp_path / "queue"}"\n'
            f'[dns]\nservers = ["127.0.0.1"]\nport = {records.server_address[1]}\ntimeout_s = 3\n'
            f"[[listeners]]\nport = {port or free_port()}\n"
            f'[[zones]]\nname = "default"\nsender_domains = ["d.example"]\nsources = ["{ADDRESS}"]\n{more}'
        )
        ran = zonemta("doctor", "--config", file, "--blocklist", "list.test", "--json", *arguments)
        rows = json.loads(ran.out)
        return {row["about"]: row for row in rows} | {"status": ran.code}

    return run


def _whole(records: Records) -> None:
    """All as it should be."""
    records.all |= {
        ("mail.d.example", "A"): [ADDRESS],
        (f"{BACKWARDS}.in-addr.arpa", "PTR"): ["mail.d.example."],
        ("d.example", "MX"): ["10 mail.d.example."],
        ("d.example", "TXT"): [f'"v=spf1 ip4:{ADDRESS} -all"'],
        ("_dmarc.d.example", "TXT"): ['"v=DMARC1; p=none"'],
        ("2.0.0.127.list.test", "A"): ["127.0.0.2"],
    }


def test_what_is_right_is_ok(doctor: Any, records: Records) -> None:
    """Names, SPF, DMARC, blocklists, port, disk; only the key for signatures is missing, a warning."""
    _whole(records)
    found = doctor()
    wrong = {about: row for about, row in found.items() if about != "status" and row["level"] == "problem"}
    assert not wrong
    assert found["status"] == Exit.OK
    for about in (
        "host name mail.d.example", f"source address {ADDRESS}", f"SPF of d.example for {ADDRESS}",
        "DMARC of d.example", "mail to d.example", f"{ADDRESS} on blocklists",
    ):  # fmt: skip
        assert found[about]["level"] == "ok", found[about]
    assert found["DKIM"]["level"] == "warning"


@pytest.mark.parametrize(
    ("change", "about", "words"),
    [
        ({(f"{BACKWARDS}.in-addr.arpa", "PTR"): []}, f"source address {ADDRESS}", "no name in DNS"),
        ({(f"{BACKWARDS}.in-addr.arpa", "PTR"): ["other.example."]}, f"source address {ADDRESS}", "does not lead back"),
        ({("mail.d.example", "A"): []}, "host name mail.d.example", "no address in DNS"),
        ({("d.example", "TXT"): ['"v=spf1 -all"']}, f"SPF of d.example for {ADDRESS}", "asked to refuse"),
        ({("d.example", "TXT"): ['"v=spf1 ip4:1.2.3.4.5 -all"']}, f"SPF of d.example for {ADDRESS}", "record is wrong"),
        (
            {("_dmarc.d.example", "TXT"): ['"v=DMARC1; p=none"', '"v=DMARC1; p=reject"']},
            "DMARC of d.example",
            "2 recor",
        ),
        ({("d.example", "MX"): []}, "mail to d.example", "nowhere to go"),
        ({("d.example", "MX"): ["0 ."]}, "mail to d.example", "null MX"),
        ({(f"{BACKWARDS}.list.test", "A"): ["127.0.0.2"]}, f"{ADDRESS} on blocklists", "list.test lists it"),
    ],
)
def test_what_is_wrong_in_dns_is_a_problem(
    doctor: Any, records: Records, change: dict[tuple[str, str], list[str]], about: str, words: str
) -> None:
    """One thing each, with a remedy and exit status 1."""
    _whole(records)
    records.all |= change
    found = doctor()
    assert (found[about]["level"], found["status"]) == ("problem", Exit.PROBLEMS)
    assert words in found[about]["words"]
    assert found[about]["remedy"]


def test_a_name_server_that_fails_is_no_problem_of_the_record(doctor: Any, records: Records) -> None:
    _whole(records)
    records.silent = {"_dmarc.d.example", f"{BACKWARDS}.list.test"}
    found = doctor()
    assert found["DMARC of d.example"]["level"] == "note"
    assert "did not answer" in found[f"{ADDRESS} on blocklists"]["words"]
    assert found["status"] == Exit.OK


def test_a_list_that_refuses_to_answer_lists_nobody(doctor: Any, records: Records) -> None:
    """Spamhaus answers public resolvers with 127.255.255.254."""
    _whole(records)
    records.all[f"{BACKWARDS}.list.test", "A"] = ["127.255.255.254"]
    assert doctor()[f"{ADDRESS} on blocklists"]["level"] == "note"


def test_a_list_that_answers_nothing_says_nothing(doctor: Any, records: Records) -> None:
    """A resolver that knows no name would make everybody clean: the list's test entry tells."""
    _whole(records)
    del records.all["2.0.0.127.list.test", "A"]
    found = doctor()[f"{ADDRESS} on blocklists"]
    assert (found["level"], "list.test did not answer, not even for a test entry" in found["words"]) == ("note", True)


def test_a_taken_port_is_named(doctor: Any, records: Records) -> None:
    _whole(records)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = doctor(port=port)
    assert found[f"port 127.0.0.1:{port} of smtp"]["level"] == "problem"
    assert "stop the program" in found[f"port 127.0.0.1:{port} of smtp"]["remedy"]


def test_without_dns_nothing_is_asked(doctor: Any, records: Records) -> None:
    """Only this machine is looked at."""
    records.all.clear()
    found = doctor("--no-dns")
    assert found["DNS"]["level"] == "note"
    assert not any("SPF" in about for about in found)


def test_a_smart_host_answers_for_the_addresses(doctor: Any, records: Records) -> None:
    _whole(records)
    found = doctor(more='host = "127.0.0.1"\n')
    assert "smart hosts" in found["DNS"]["words"]
    assert f"source address {ADDRESS}" not in found


@pytest.mark.parametrize(("banner", "level"), [(b"220 hello\r\n", "ok"), (b"554 go away\r\n", "warning")])
def test_the_way_out_is_tried(banner: bytes, level: str) -> None:
    """A server on loopback greets, or refuses."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            client, _ = server.accept()
            client.sendall(banner)
            client.recv(100)
            client.close()

        thread = threading.Thread(target=greet)
        thread.start()
        found = machine.port_25("127.0.0.1", server.getsockname()[1])
        thread.join()
    assert found.level == level
    assert machine.port_25("127.0.0.1", free_port()).level == "problem"


def test_a_table_for_people(zonemta: Zonemta, tmp_path: Path) -> None:
    """What is wrong comes first; a count ends it."""
    file = tmp_path / "zonemta.toml"
    file.write_text(f'[server]\nfolder = "{tmp_path}"\n[[listeners]]\nport = {free_port()}\n')
    ran = zonemta("doctor", "--config", file, "--no-dns")
    assert "disk of" in ran.out
    assert " × ok" in ran.out


def test_a_disk_that_takes_no_byte_is_a_finding(tmp_path: Path) -> None:
    """The rest is looked at all the same: it is on such a day that somebody asks."""
    command = f"{sys.executable} -m zonemta_py doctor --no-dns --plain --folder {tmp_path}"
    ran = subprocess.run(["bash", "-c", f"ulimit -f 0; exec {command}"], capture_output=True, text=True, check=False)
    assert ran.stderr.count("\n") <= 1
    assert f"disk of {tmp_path}\ta write fails (file too large)\tfree space, or repair the disk" in ran.stdout
    assert "memory" in ran.stdout


def test_a_remedy_is_shown_on_any_terminal(
    doctor: Any, zonemta: Zonemta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below what was found, however narrow it is. Records for programs have it beside that."""
    doctor()
    monkeypatch.setenv("COLUMNS", "80")
    command = ("doctor", "--config", tmp_path / "zonemta.toml", "--blocklist", "list.test")
    ran = zonemta(*command)
    assert "left out" not in ran.err
    assert (
        f"host name mail.d.example: has no address in DNS\n         -> publish: mail.d.example. IN A {ADDRESS}\n"
        in ran.out
    )
    assert zonemta(*command, "--csv").out.startswith("level,about,found,remedy\n")


def test_no_name_server_at_all_is_a_problem() -> None:
    """Each lookup that fails is a note; if all do, that is said once, as what it is. One answer is enough."""
    failed = note("mail to d.example", "DNS lookup of d.example (MX) failed: name server failure")
    (found,) = unanswered([failed, warning("DKIM", "nothing is signed", "make a key")])
    assert (found.level, found.about) == ("problem", "DNS")
    assert unanswered([failed, ok("host name mail.d.example", "is 192.0.2.1")]) == []
    assert unanswered([note("way out", "all mail goes to smart hosts")]) == []


@pytest.mark.parametrize(
    ("options", "prefix", "level"),
    [
        ("'--prefix=/usr/local' '--enable-optimizations' '--with-lto'", "/usr/local", Level.OK),
        ("'--enable-shared' '--prefix=/usr'", "/usr", Level.OK),
        ("'--prefix=/root/.pyenv/versions/3.11.7' '--enable-shared'", "/root/.pyenv/versions/3.11.7", Level.NOTE),
        (None, "/opt/python", Level.NOTE),
    ],
)
def test_a_python_that_was_built_without_optimizations_is_named(
    monkeypatch: pytest.MonkeyPatch, options: str | None, prefix: str, level: Level
) -> None:
    """Distributions optimize theirs without saying so; pyenv does not unless it is told to."""
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: options)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    found = machine.interpreter()
    assert (found.level, bool(found.remedy)) == (level, level is Level.NOTE)


async def test_links_are_reached_as_providers_reach_them(tmp_path: Path) -> None:
    """By name, over https, with a certificate that is trusted; another program there is no listener of ours."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    said = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {len(said)}\r\n\r\n"
        writer.write(head.encode() + said)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    section = {"enabled": True, "url": f"https://localhost:{port}/mail", "secrets": ["0123456789abcdef"]}
    trusting = Config.model_validate({"links": section, "tls": {"ca_file": tmp_path / "ca"}})
    for config, said, level, words in (  # noqa: B007
        (trusting, HELLO, Level.OK, "is answered by this program"),
        (trusting, b"hello", Level.PROBLEM, "another program answers there"),
        (Config.model_validate({"links": section}), b"", Level.PROBLEM, "certificate of localhost is not valid"),
    ):  # fmt: skip
        found = await reached(config)
        assert (found.level, words in found.words) == (level, True), found
    server.close()
    found = await reached(trusting)
    assert (found.level, "cannot be reached" in found.words) == (Level.PROBLEM, True)


BACK = '[return_path]\nverp = "b.example"\nsecret = "0123456789abcdef"\n[[listeners]]\nname = "mx"\nfeedback = true\n'


@pytest.mark.parametrize(
    ("more", "mx", "level", "said"),
    [
        (BACK, {("b.example", "MX"): ["10 mail.d.example."]}, "ok", "an MX leads here"),
        (
            BACK,
            {("b.example", "MX"): ["10 in.b.example."], ("in.b.example", "A"): [ADDRESS]},
            "ok",
            "an MX leads here",
        ),
        (BACK, {("b.example", "MX"): ["10 other.example."]}, "problem", "goes to other.example, not to this machine"),
        (BACK, {("b.example", "A"): ["192.0.2.1"]}, "problem", "has no MX, so that nothing comes back"),
    ],
)
def test_the_way_back(
    doctor: Any, records: Records, more: str, mx: dict[tuple[str, str], list[str]], level: str, said: str
) -> None:
    """The MX of a domain of return paths has to lead to this machine."""
    records.all.update(mx)
    found = doctor(more=f"{more}port = {free_port()}\nrelay_networks = []\n")
    assert (found["return path b.example"]["level"], said) == (level, found["return path b.example"]["words"])
    assert found["listener mx"]["level"] == "warning"  # it is on loopback
    assert "relaying at mx" not in found


def test_everybody_is_no_client_that_may_relay(doctor: Any) -> None:
    """Behind something on this machine that forwards port 25, strangers have its address."""
    assert "every client may relay" in doctor("--no-dns", more=BACK)["relaying at mx"]["words"]


def test_a_way_back_without_a_listener(doctor: Any) -> None:
    found = doctor("--no-dns", more=BACK.partition("[[listeners]]")[0])
    assert "is taken by no listener here" in found["return path"]["words"]
