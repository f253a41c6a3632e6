"""`zonemta feedback …` against a real queue: what came back, listed, shown, and forgotten."""

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.mail.reports import makers
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.api import Feedback
from zonemta_py.queue.queue import LocalQueue

Told = Callable[..., Any]
RAW = b"Subject: hm\r\n\r\nWhat is \x1b[31mthis\x00?\r\n"


async def some(queue: LocalQueue) -> None:
    envelope = Envelope("src@x.test", [Recipient("ann@x.test")], 10, campaign="spring")
    one = (await queue.accept(envelope, b"Subject: x\r\n\r\n")).id
    await queue.feedback([
        Feedback("complaint", "ann@x.test", one, genuine="token", via="smtp", text="abuse", reporter="mx.x.test"),
        Feedback("other", raw=RAW, via="smtp", text="hm"),
    ])  # fmt: skip


def test_it_is_listed_and_shown(served: Told, told: Told) -> None:
    """By kind, recipient, campaign and message; what nothing proves says so; the story of the message has it too."""
    served().do(some)
    out = told("feedback", "list", "--plain").out
    assert "complaint\tann@x.test\tspring" in out
    assert "other\t\t\t\tno" in out
    rows = json.loads(told("feedback", "list", "--json").out)["rows"]
    assert [row["kind"] for row in rows] == ["other", "complaint"]
    message = rows[1]["message"]
    for where in (
        ("--kind", "complaint"),
        ("--recipient", "ANN@x.test"),
        ("--campaign", "spring"),
        ("--message", message),
    ):
        assert [row["seq"] for row in json.loads(told("feedback", "list", *where, "--json").out)["rows"]] == [
            rows[1]["seq"]
        ]
    assert json.loads(told("feedback", "list", "--limit", "1", "--json").out)["next"] == rows[0]["seq"]
    after = json.loads(told("feedback", "list", "--after", rows[0]["seq"], "--since", "1h", "--json").out)["rows"]
    assert [row["kind"] for row in after] == ["complaint"]
    ran = told("feedback", "list", "--after", "0:17 2:5")  # as of several queues, which this MTA has not
    assert (ran.code, "'0:17 2:5' is not a cursor" in ran.err) == (Exit.DATA, True)
    out = told("feedback", "show", rows[1]["seq"]).out
    assert "mx.x.test" in out
    assert "came back: complaint" in told("trace", message).out
    ran = told("feedback", "list", "--kind", "slander")
    assert (ran.code, "there is no kind of feedback 'slander'" in ran.err) == (Exit.DATA, True)
    for option, nonsense, sentence in (
        ("--recipient", "@@", "is not an address"),
        ("--message", "18", "16 hexadecimal"),
    ):
        ran = told("feedback", "list", option, nonsense)
        assert (ran.code, f"{nonsense!r} is not" in ran.err, sentence in ran.err) == (Exit.DATA, True, True)
    ran = told("feedback", "show", "999")
    assert (ran.code, "nothing that came back has number 999" in ran.err) == (Exit.DATA, True)


def test_a_table_for_a_spreadsheet_has_no_formula(served: Told, told: Told) -> None:
    """Strangers write these texts. Numbers and addresses stay what they are, since programs read them too."""
    hostile = ['=HYPERLINK("https://evil.example")', "@SUM(1)", "+cmd|' /C calc'!A0", "-2+3+cmd|x", "\t=1+1"]
    rows = [Feedback("other", "+1.2@x.test", raw=b"x%d" % at, text=text) for at, text in enumerate(hostile)]
    served().do(lambda queue: queue.feedback(rows))
    table = list(csv.reader(told("feedback", "list", "--csv").out.splitlines()))[1:]
    assert len(table) == len(hostile)
    for row in table:
        assert row[3] == "+1.2@x.test"
        assert row[-1].startswith("'") or row[-1].lstrip() == "=1+1"


def test_what_nobody_understood_is_kept_until_it_is_forgotten(served: Told, told: Told) -> None:
    """It is shown as it came, without what would command a terminal; its row stays."""
    served().do(some)
    (row,) = json.loads(told("feedback", "list", "--unread", "--json").out)["rows"]
    assert (row["kind"], row["raw_bytes"]) == ("other", len(RAW))
    out = told("feedback", "show", row["seq"]).out
    assert "Subject: hm" in out
    assert "\x1b" not in out
    assert json.loads(told("feedback", "show", row["seq"], "--json").out)["raw"] == RAW.decode()
    assert told("feedback", "forget").code == Exit.USAGE
    assert told("feedback", "forget", row["seq"]).out == "1 forgotten\n"
    assert json.loads(told("feedback", "list", "--unread", "--json").out)["rows"] == []
    assert len(json.loads(told("feedback", "list", "--json").out)["rows"]) == 2
    assert told("feedback", "forget", row["seq"]).code == Exit.DATA
    assert told("feedback", "forget", "--all").out == "0 forgotten\n"


def test_reports_are_imported_and_summed_up(served: Told, told: Told, tmp_path: Path) -> None:
    """Tables and files of reports, each once; of a file that cannot be read it is said why, and nothing is imported."""
    home = served()
    begin = int(time.time()) // 86_400 * 86_400 - 86_400
    rows = makers.row("192.0.2.9", 90), makers.row("192.0.2.1", 7, "fail", "fail")
    report, table, wrong = tmp_path / "r.xml.gz", tmp_path / "snds.csv", tmp_path / "wrong.zip"
    report.write_bytes(makers.gzipped(makers.report("Provider", "1", *rows, begin=begin)))
    day = time.strftime("%m/%d/%Y", time.gmtime(begin))
    table.write_text(f"192.0.2.9,{day} 1:00 AM,{day} 9:00 PM,100,99,98,RED,2.3%,,,3,mx.example,n@example.com,\n")
    wrong.write_bytes(makers.zipped("a.txt", "hello"))
    ran = told("feedback", "import", report, wrong)
    assert (ran.code, ran.err.count(f"{wrong}: what is packed in it is neither XML nor JSON")) == (Exit.DATA, 1)
    assert "No reports about the last 7 days" in told("feedback", "reports").out
    assert json.loads(told("feedback", "import", report, table, "--json").out) == {"imported": 2, "known": 0}
    assert told("feedback", "import", report, table).out == "0 imported, 2 known already\n"
    out = told("feedback", "reports", "--days", "3").out
    for part in ("Provider", "192.0.2.1", "RED", "2.3 %", "key"):
        assert part in out
    found = json.loads(told("feedback", "reports", "--domain", "EXAMPLE.com", "--json").out)
    assert [(one["messages"], one["passed"]) for one in found["dmarc"]] == [(97, 90)]
    assert told("feedback", "reports", "--plain").out.startswith("DMARC\texample.com\tProvider")
    (row,) = json.loads(told("feedback", "list", "--kind", "dmarc-report", "--json").out)["rows"]
    shown = told("feedback", "show", row["seq"]).out
    assert "192.0.2.1" in shown
    assert "97 messages" in shown
    assert home is not None
