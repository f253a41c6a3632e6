"""How an MTA is: for a person, for Nagios; the story of a message; the age of what waits. Asked of a real queue."""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue
from zonemta_py.wire import SOCKET

BODY = b"Subject: Hello\r\n\r\nHi\r\n"
Told = Callable[..., Any]


def put(*addresses: str) -> Callable[[LocalQueue], Any]:
    async def run(queue: LocalQueue) -> str:
        envelope = Envelope("ann@example.com", [Recipient(one) for one in addresses], len(BODY))
        envelope.received_ms = time.time_ns() // 1_000_000
        envelope.headers = {"subject": "Hello"}
        return (await queue.accept(envelope, BODY)).id

    return run


def deferring(address: str) -> Callable[[LocalQueue], Any]:
    """A message that is deferred from the beginning."""

    async def run(queue: LocalQueue) -> str:
        envelope = Envelope("ann@example.com", [Recipient(address)], len(BODY))
        envelope.received_ms = time.time_ns() // 1_000_000
        envelope.hold_until_ms = envelope.received_ms + 3_600_000
        return (await queue.accept(envelope, BODY)).id

    return run


def check(folder: Path, *arguments: str) -> tuple[int, str]:
    """`zonemta status --nagios` in a process of its own: its status is none of sysexits.h."""
    command = [sys.executable, "-m", "zonemta_py", "status", "--nagios", "--folder", str(folder), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.count("\n") == 1
    return ran.returncode, ran.stdout


def test_status_for_a_person(served: Callable[..., Any], told: Told) -> None:
    """Since when, rates, what waits by zone, what is suspended, disk; the same for programs."""
    queue = served(zones=[{"name": "default", "default": True}, {"name": "bulk", "recipient_domains": ["z.org"]}])
    queue.do(put("a@x.org", "b@z.org"))
    told("suspend", "zone", "bulk", "--because", "complaints")
    out = told("status").out
    for words in (
        "s ago",
        "0.0 in, 0.0 out",
        "2 queued; 1 message, ",
        "zone bulk",
        "zone bulk; `zonemta standing`",
        "free",
    ):
        assert words in out, words
    found = json.loads(told("status", "--json").out)
    assert found["running"]
    assert found["total"]["queued"] == 2
    assert found["zones"]["bulk"]["queued"] == 1
    assert [row["name"] for row in found["standing"]] == ["bulk"]
    assert found["disk"]["free"] > found["disk"]["reserve"] > 0
    assert dict(line.split("\t") for line in told("status", "--plain").out.splitlines())["in doubt"] == "none"


def test_status_of_none(told: Told, tmp_path: Path) -> None:
    """It does not run: the exit status says so, and the check is critical."""
    assert told("status").code == Exit.UNAVAILABLE
    code, line = check(tmp_path)
    assert code == 2
    assert line.startswith("ZONEMTA CRITICAL - no queue answers at ")


def test_nagios_hears_of_a_queue_that_stands_still(tmp_path: Path) -> None:
    """In time: Nagios itself waits ten seconds."""
    with socket.socket(socket.AF_UNIX) as still:
        still.bind(str(tmp_path / SOCKET))
        still.listen()
        code, line = check(tmp_path, "--timeout", "1")
    assert (code, line) == (2, "ZONEMTA CRITICAL - no answer within 1 s; the log may say why\n")


def test_nagios(served: Callable[..., Any], told: Told, tmp_path: Path) -> None:
    """One line: OK, warning and critical by thresholds, with performance data; unknown for what makes no sense. Each
    number is what `status` says under that name, and what waits is the sum of its states."""
    queue = served()
    queue.do(put("a@x.org", "b@x.org", "c@x.org"))
    queue.do(deferring("d@x.org"))
    told("queue", "hold", "--recipient", "c@x.org", "--yes")
    total = json.loads(told("status", "--json").out)["total"]
    assert [total[name] for name in ("queued", "deferred", "held", "leased")] == [2, 1, 1, 0]
    code, line = check(tmp_path)
    assert (code, line.startswith("ZONEMTA OK - 4 waiting, 0.0/s go | waiting=4;;;0 queued=2;;;0 ")) == (0, True)
    data = line.partition(" | ")[2].split()
    assert all(re.fullmatch(r"\w+=[\d.]+(MB)?;[\d.]*:?;[\d.]*:?;0", one) for one in data)
    assert data[-1].endswith("MB;1024:;128:;0"), "a range: wrong is what is below it"
    said = {name: int(value.partition(";")[0]) for name, _, value in (one.partition("=") for one in data[:6])}
    assert {name: said[name] for name in ("queued", "deferred", "held", "leased")} == {
        name: total[name] for name in ("queued", "deferred", "held", "leased")
    }
    assert check(tmp_path, "--waiting", "4,10")[:1] == (1,)
    assert check(tmp_path, "--queued", "3,10")[:1] == (0,)
    code, line = check(tmp_path, "--queued", "1,2", "--disk", "1e12,")
    assert code == 2
    assert line.startswith("ZONEMTA CRITICAL - 2 recipients queued; ")
    assert " free | waiting=4;;;0 queued=2;1;2;0 " in line
    code, line = check(tmp_path, "--queued", "many")
    assert (code, line) == (3, "ZONEMTA UNKNOWN - --queued: 'many' is not two numbers; write it like 1000,5000\n")


def test_certificates(served: Callable[..., Any], told: Told, tmp_path: Path) -> None:
    """In how many days each ends; one that ends soon is a warning, one that is gone is critical."""
    queue = served()
    soon = datetime.now(UTC) + timedelta(days=5, hours=1)
    trustme.CA().issue_cert("mx.example.com", not_after=soon).private_key_and_cert_chain_pem.write_to_path(
        str(tmp_path / "mx.pem")
    )
    file = tmp_path / "zonemta.toml"
    file.write_text(f'[[listeners]]\ntls = "starttls"\ncertificate = "{tmp_path}/mx.pem"\n')
    assert "ends in 5 days" in told("status", "--config", file).out
    code, line = check(tmp_path, "--config", str(file))
    assert (code, "listeners.smtp.certificate ends in 5 days" in line) == (1, True)
    (tmp_path / "mx.pem").unlink()
    code, line = check(tmp_path, "--config", str(file))
    assert code in (2, 3)
    assert "mx.pem" in line
    metric = "zonemta_certificate_expiry_timestamp_seconds"
    rows = [[metric, ["smtp"], datetime.now(UTC).timestamp() + 3600 * 24 * 20.4]]
    queue.do(lambda inner: inner.ask("report", process="smtp-1", counts=[], gauges=rows))
    out = told("status", "--config", file).out
    assert "mx.pem" in out
    assert "the one in use ends in 20 days" in out, "and not what the file says, or nothing"


def test_a_story(served: Callable[..., Any], told: Told) -> None:
    """Of a message and of an address: accepted, deleted; in words, and for programs. Nothing known is said so."""
    queue = served()
    id = queue.do(put("a@x.org", "b@y.org"))
    told("queue", "delete", id, "--undo-for", "1h")
    out = told("trace", id).out
    assert out.startswith(f"message {id}\n")
    assert re.search(r"accepted +a@x\.org, b@y\.org .*from ann@example\.com Hello", out)
    assert re.search(r"task +.*verb delete", out)
    (row,) = json.loads(told("task", "list", "--json").out)
    told("task", "undo", row["id"])
    out = told("trace", id).out
    assert 0 < out.count(" task undone ") == out.count("verb delete") / 2
    found = json.loads(told("trace", "a@X.ORG", "--json").out)
    assert [row["what"] for row in found["rows"]][:2] == ["accepted", "task"]
    assert found["ids"] == [id]
    ran = told("trace", "nobody@x.org")
    assert (ran.code, "nothing is known of nobody@x.org back to 20" in ran.err) == (Exit.DATA, True)
    assert "neither a message's id nor an address" in told("trace", "x.org").err


@pytest.mark.parametrize("by", ["domain", "site", "provider"])
def test_qshape(served: Callable[..., Any], told: Told, by: str) -> None:
    """Ages across, destinations down, all of it first."""
    served().do(put("a@x.org", "b@x.org", "c@y.org"))
    lines = [line.split() for line in told("qshape", "--by", by).out.splitlines()]
    assert lines[0][:3] == [by, "T", "5"]
    assert lines[1][:3] == ["TOTAL", "3", "3"]
    if by == "domain":
        assert [line[:2] for line in lines[2:]] == [["x.org", "2"], ["y.org", "1"]]
    assert json.loads(told("qshape", "--json").out)["all"]["total"] == 3


def test_qshape_as_of_postfix(served: Callable[..., Any], told: Told) -> None:
    """Its queue names and options, alone and in one word; what is not here is said in a sentence."""
    queue = served()
    queue.do(put("a@one.sub.x.org", "b@two.sub.x.org", "c@y.org"))
    told("queue", "hold", "--domain", "y.org", "--yes")
    totals = {
        "incoming active deferred hold": 3, "incoming": 2, "queued": 2, "hold": 1, "active deferred": 0,
        "deferred hold hold": 1,
    }  # fmt: skip
    for names, total in totals.items():
        assert told("qshape", *names.split()).out.splitlines()[1].split()[:2] == ["TOTAL", str(total)]
    lines = told("qshape", "-lp", "-m2", "-b", "4", "-t1", "-n", "1", "-N1000", "-w100", "incoming").out.splitlines()
    assert [line.split() for line in lines] == [
        ["domain", "T", "1", "2", "3", "3+"],
        ["TOTAL", "2", "2", "0", "0", "0"],
        [".sub.x.org", "2", "2", "0", "0", "0"],
    ]
    assert [line.split()[:2] for line in told("qshape", "-s").out.splitlines()[1:]] == [
        ["TOTAL", "3"], ["example.com", "3"],
    ]  # fmt: skip
    for names, said in {
        "maildrop": "there is no queue 'maildrop' here; submitted mail is in the queue",
        "corrupt": "damaged mail is in quarantine/",
        "bounce": "`zonemta queue list --state bounced`",
        "junk": "name some of incoming, active, deferred, hold, or none",
        "-s --by provider": "-s is --by sender",
        "-p --by site": "-p is for domains",
    }.items():
        ran = told("qshape", *names.split())
        assert ran.code == Exit.USAGE
        assert said in ran.err


def test_qshape_has_all_of_a_long_queue(served: Callable[..., Any], told: Told) -> None:
    """However little the queue counts before its first answer: what is asked for is a whole, also in a pipe to head."""
    queue = served()
    for message in range(60):
        queue.do(put(*(f"r{message}-{number}@x.org" for number in range(1000))))
    found = json.loads(told("qshape", "--json").out)
    assert (found["complete"], found["all"]["total"]) == (True, 60_000)


def test_a_story_in_a_pipe(served: Callable[..., Any], told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, however narrow the terminal would be."""
    id = served().do(put("somebody.with-a.long-name@department.x.org"))
    monkeypatch.setenv("COLUMNS", "80")
    ran = told("trace", "somebody.with-a.long-name@department.x.org")
    assert "from ann@example.com Hello" in ran.out
    assert f"messages: {id}\n" in ran.out
    assert (ran.err, "somebody.with-a.long-name@department.x.org" in ran.out) == ("", True)


def test_a_story_without_the_mta(served: Callable[..., Any], told: Told, tmp_path: Path) -> None:
    """The journal has it; where there is none, that is said as by every command."""
    queue = served()
    id = queue.do(put("a@x.org"))
    with_it = told("trace", id)
    queue.close()
    without = told("trace", f"{id}!")
    assert (without.code, without.out) == (0, with_it.out)
    assert without.err == "zonemta: the MTA is not running; this comes from its journal and archive\n"
    assert json.loads(told("trace", "<a@X.org>", "--json").out)["ids"] == [id]
    assert told("trace", "b@x.org").code == told("trace", "junk").code == Exit.DATA
    shutil.rmtree(tmp_path / "journal")
    ran = told("trace", id)
    assert (ran.code, ran.err.count("\n")) == (Exit.UNAVAILABLE, 1)
    assert "start it with `zonemta run`" in ran.err
