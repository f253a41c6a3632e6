"""Tables: at a terminal of any width, in a pipe, for cut and grep, as CSV; every word that is shown is whole."""

import csv
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from zonemta_py.cli.terminal import layout, rejects, when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.output import Form, print_table, printed_as, sentence
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

COLUMNS = ("id", "recipient", "tried ", "due", "last reply")
ID, ADDRESS, DUE = "19f3c2d8a0001f3a", "somebody.with-a.long-name@department.example.org", "2026-11-22 14:52:53+01:00"
REPLY = "450 4.2.1 The mailbox is busy; try again later, we are sorry that it cannot be helped at this time"
ROW = (ID, ADDRESS, "1,234", DUE, REPLY)
BOXES = re.compile("[\u2500-\u257f]")


def test_what_is_said_comes_in_its_order() -> None:
    """Where output and errors go into one pipe, no line overtakes another."""
    lines = "print('one'); print('two', file=sys.stderr); print('three'); print('four', file=sys.stderr)"
    program = f"import sys; from zonemta_py.__main__ import in_order; in_order(); {lines}"
    ran = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    assert ran.stdout.split() == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize("width", [60, 72, 80, 120, 200])
def test_words_stay_whole(width: int) -> None:
    """Ids, addresses and moments are on one line at any usual width, and no line is wider than the terminal."""
    rows = [ROW, ROW]
    kept = layout.room(COLUMNS, rows, width, (1, 0, 4, 3, 2))
    lines = layout.fitted([COLUMNS[one] for one in kept], [[row[one] for one in kept] for row in rows], width)
    assert all(cell_len(line) <= width for line in lines)
    for number, word in enumerate(ROW[:4]):
        assert sum(word in line for line in lines) == (2 if number in kept else 0)
    text = " ".join(" ".join(lines).split())
    assert 1 in kept
    assert (0 in kept) == (width >= 72)
    assert (4 in kept) == (width >= 120)
    assert width < 200 or (len(kept) == 5 and all(word in text for word in REPLY.split()))


def test_a_row_is_a_line_where_there_is_room() -> None:
    """And lines are no longer than they must be; numbers stand to the right."""
    lines = layout.fitted(COLUMNS, [ROW, (ID, "a@b.org", "5", "", "")], 240)
    assert len(lines) == 4
    assert lines[2].endswith(REPLY)
    assert re.search(r"a@b\.org +    5$", lines[3])


def test_the_most_important_column_always_stays() -> None:
    """However narrow it is, its words are whole."""
    assert layout.room(("id", "zone", "recipient"), [(ID, "default", ADDRESS)], 12, (2, 0, 1)) == [2]
    assert ADDRESS in layout.fitted(("recipient",), [(ADDRESS,)], 12)
    assert layout.room(("what", "now"), [("runs", ADDRESS)], 12, (0, 1)) == [0, 1], "a name alone says nothing"


TEXT = st.text(st.characters(exclude_categories=("C", "Z")) | st.just(" "), max_size=60)


@given(st.lists(st.lists(TEXT, min_size=3, max_size=3), max_size=5), st.integers(20, 250))
def test_nothing_is_lost_in_any_layout(rows: list[list[str]], width: int) -> None:
    """Every character of every cell that is shown is there, however narrow it gets."""
    for lines in (layout.fitted(("a", "b ", "c"), rows, width), layout.aligned(("a", "b ", "c"), rows)):
        shown = "".join("".join(lines).split())
        for cell in (cell for row in rows for cell in row):
            for character in set(cell) - {" "}:
                assert shown.count(character) >= cell.count(character)


def test_a_pipe_gets_a_line_for_each_record(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all columns, however wide it is; what is in a cell cannot break the line."""
    rows = [ROW, (ID, ADDRESS, 7, DUE, "two\nlines\x1b[31m")]
    monkeypatch.setenv("COLUMNS", "20")
    print_table("Recipients", COLUMNS, rows, "More: --after x")
    out, err = capsys.readouterr()
    assert not BOXES.search(out)
    title, head, first, second, footer = out.splitlines()
    assert (title, head.split()[:3], footer) == ("Recipients", ["id", "recipient", "tried"], "More: --after x")
    assert all(cell in first for cell in ROW)
    assert second.endswith("two lines\ufffd[31m")
    assert err == ""


class Screen(io.StringIO):
    """What is printed at a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


LINES = ("zone", "to", "from", "flow", "waiting ", "why", "until")
TO, WHY = "gmail-smtp-in.l.google.com (google)", "tried 3 times, the last answer was: " + "later " * 50


@pytest.mark.parametrize(
    ("differs", "shown"), [("zone", ["b"]), ("from", ["192.0.2.2"]), ("flow", ["campaign", "spring"])]
)
def test_what_tells_rows_apart_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, differs: str, shown: list[str]
) -> None:
    """At 80 columns, too: a long sentence is shortened and a moment said in brief, and that is said."""
    now_ms = 1_795_000_000_000
    until, end = when.until(now_ms + 240_000, now_ms), when.until(now_ms, now_ms)
    usual: dict[str, object] = {"zone": "a", "to": TO, "from": "192.0.2.1", "flow": "priority 3, campaign winter"}
    usual |= {"waiting": 7, "why": sentence(WHY), "until": until}
    other = usual | {differs: " ".join(shown), "until": end}
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    rows = [[row[name.strip()] for name in LINES] for row in (usual, other)]
    print_table("Why it waits", LINES, rows, "", ("to", "why", "until", "waiting"), ("zone", "to", "from", "flow"))
    lines = screen.getvalue().splitlines()
    assert all(cell_len(line) <= 80 for line in lines), lines
    assert all(word in screen.getvalue().split() for word in shown)
    assert "in 4 min" in screen.getvalue()
    assert len(lines) < 14
    err = capsys.readouterr().err
    assert err.startswith("zonemta: left out: ")
    assert "shortened: why, until; --columns NAME,... chooses, --plain and --csv have all" in err


def test_columns_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order that is asked for, spelled with a hyphen, in every form; another table shows those it has."""
    for form, lines in (
        (Form.FITTED, [["Recipients"], ["last", "reply", "id"], [*REPLY.split(), ID]]),
        (Form.PLAIN, [[*REPLY.split(), ID]]),
        (Form.CSV, [["last", "reply,id"], f'"{REPLY}",{ID}'.split()]),
    ):
        with printed_as(form, ["last-reply", "ID"]):
            print_table("Recipients", COLUMNS, [ROW])
            assert [line.split() for line in capsys.readouterr().out.splitlines()] == lines
            print_table("", ("id", "other"), [("1", "2")])
            assert "2" not in capsys.readouterr().out
    with (
        printed_as(Form.PLAIN, ["colour"]),
        pytest.raises(CommandError, match="no column 'colour'; use some of id,recipient,tried,due,last-reply"),
    ):
        print_table("", COLUMNS, [ROW])


def test_plain_is_for_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Fields between tabs, a line for each record and nothing else; numbers without commas, no tab in any field."""
    with printed_as(Form.PLAIN):
        print_table(
            "Recipients", COLUMNS, [(ID, ADDRESS, 1234, DUE, "a\tb\nc"), (ID, "", 0, "", "")], "More: --after x"
        )
    out, err = capsys.readouterr()
    assert out == f"{ID}\t{ADDRESS}\t1234\t{DUE}\ta b c\n{ID}\t\t0\t\t\n"
    assert err == "More: --after x\n"


def test_csv_is_records_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers as they are; the footer goes to stderr, where no program trips over it."""
    with printed_as(Form.CSV):
        print_table("Recipients", COLUMNS, [(ID, ADDRESS, 1234, DUE, 'it said "no", twice')], "More: --after x")
    out, err = capsys.readouterr()
    assert list(csv.reader(io.StringIO(out))) == [
        ["id", "recipient", "tried", "due", "last reply"], [ID, ADDRESS, "1234", DUE, 'it said "no", twice'],
    ]  # fmt: skip
    assert err == "More: --after x\n"


# ---------------------------------------------------------------- the commands


@pytest.fixture
def busy(served: Callable[..., Any]) -> str:
    """A queue with a message that waits; its id."""

    async def put(queue: LocalQueue) -> str:
        body = b"Subject: Hello\r\n\r\nHi\r\n"
        envelope = Envelope(
            "ann@example.com", [Recipient(ADDRESS)], len(body), received_ms=1_700_000_000_000,
            user="ann", headers={"subject": "Hello"}, hashes={"relaxed": b"\xe6\x00"},
        )  # fmt: skip
        return (await queue.accept(envelope, body)).id

    return str(served().do(put))


TABLES = [
    ("queue", "size"), ("queue", "list"), ("queue", "in-doubt"), ("standing",), ("lanes",), ("warmup",),
    ("campaign", "list"), ("suppression", "list"), ("explain", ADDRESS), ("rules", "list"),
]  # fmt: skip


@pytest.mark.parametrize("command", TABLES, ids=" ".join)
def test_each_table_in_each_form(
    command: tuple[str, ...], busy: str, zonemta: Callable[..., Any], tmp_path: Path
) -> None:
    """In a pipe as with --plain; CSV that a reader of CSV takes, each row as wide as the first; one form at a time."""
    where = () if command[0] == "rules" else ("--folder", tmp_path)
    piped = zonemta(*command, *where)
    assert (piped.code, BOXES.search(piped.out)) == (Exit.OK, None)
    plain = zonemta(*command, "--plain", *where)
    assert plain.code == Exit.OK
    assert len({line.count("\t") for line in plain.out.splitlines()}) <= 1
    read = list(csv.reader(io.StringIO(zonemta(*command, "--csv", *where).out)))
    assert read
    assert all(len(row) == len(read[0]) for row in read)
    wrong = zonemta(*command, "--csv", "--json", *where)
    assert (wrong.code, "--json, --plain and --csv exclude each other; leave one" in wrong.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("columns", [80, 200])
def test_a_real_terminal(columns: int, busy: str, tmp_path: Path) -> None:
    """At 80 columns, too, no line is wider, and ids, addresses and times are whole."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "zonemta_py", "queue", "list", "--folder", tmp_path]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        text = b""
        while chunk := _read(ours):
            text += chunk
        assert process.stderr
        said = process.stderr.read().decode()
        assert process.wait(60) == 0
    os.close(ours)
    lines = text.decode().splitlines()
    assert all(cell_len(line) <= columns for line in lines)
    shown = (busy, ADDRESS, *((r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d",) if columns > 80 else ()))
    for word in shown:
        assert sum(bool(re.search(word, line)) for line in lines) == 1
    assert said.startswith("zonemta: left out: zone, ") == (columns == 80)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody has its other side any more
        return b""


def test_a_list_is_never_overwritten_with_its_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a file of bad rows that was corrected and is given again."""
    monkeypatch.chdir(tmp_path)
    given = [tmp_path / name for name in ("list.csv", "list.rejects.csv", "list-again.rejects.csv")]
    for file in given:
        file.write_text("email\n")
    others = [rejects.apart(rejects.beside(file), file) for file in given]
    assert [str(file) for file in others] == [
        "list.rejects.csv", "list-again.rejects.csv", "list-again-again.rejects.csv",
    ]  # fmt: skip
    for same in (given[0], Path("list.csv")):
        with pytest.raises(CommandError, match=r"--rejects .*list\.csv: that is the list, which would be lost; name"):
            rejects.apart(same, given[0])


def test_each_problem_of_a_list_is_told_once(tmp_path: Path) -> None:
    """With how many rows have it, and the first of them; problems that are one too many are counted."""
    bad = rejects.Rejects(tmp_path / "r.csv", ["email"])
    for line in range(2, 1002):
        bad.add("list.csv", line, "name is empty; give it", ["a@b.net"])
    for line in range(1002, 1025):
        bad.add("list.csv", line, f"{line} is bad", ["x"])
    bad.add("rows", 0, "unknown", ["x"])
    bad.close()
    told = bad.sentence(2000).splitlines()
    assert told[:2] == [
        "list.csv: 1,000 rows (lines 2, 3, 4, …): name is empty; give it", "list.csv:1002: 1002 is bad",
    ]  # fmt: skip
    assert told[20:] == [f"and 5 more; 1,024 of 2,000 rows are bad; all of them, with reasons, are in {bad.file}"]
    assert len(bad.file.read_text().splitlines()) == 1025
