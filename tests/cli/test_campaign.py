"""`zonemta campaign`: check and preview."""

import csv
import email
import email.policy
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.cli.campaign.orders import described
from zonemta_py.cli.campaign.work import look
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.metrics.quantities import QUANTITIES

EXAMPLE = Path(__file__).resolve().parents[2] / "config" / "newsletter"
LIST = EXAMPLE / "list.csv"
TEMPLATE = 'subject = "Hello {{ name }}"\nfrom = "news@example.com"\ntext = """\nDear {{ name }}\n"""\n'


@pytest.fixture
def template(tmp_path: Path) -> Path:
    file = tmp_path / "letter.toml"
    file.write_text(TEMPLATE)
    return file


def test_the_shipped_example_is_good(zonemta: Callable[..., object]) -> None:
    """For every row of its list."""
    ran = zonemta("campaign", "check", EXAMPLE, "--list", LIST)
    assert (ran.code, ran.err.count("\n")) == (Exit.OK, 1)
    assert f"{LIST}: read as CSV in UTF-8, commas between columns" in ran.err
    assert f"good for all 2 rows of {LIST}" in ran.out
    assert zonemta("campaign", "check", EXAMPLE).out == f"{EXAMPLE}: good\n"


def test_lists_of_other_programs(zonemta: Callable[..., object], tmp_path: Path, template: Path) -> None:
    """Names with blanks can be printed, and who has left there is pointed out."""
    template.write_text(TEMPLATE.replace("{{ name }}", "{{ First_Name }} {{ first_name }}"))
    (tmp_path / "list.csv").write_text(
        "Email Address,First Name,status\na@b.net,Ann,enabled\nb@b.net,Bob,blocklisted\n"
    )
    ran = zonemta("campaign", "check", template, "--list", tmp_path / "list.csv")
    assert (ran.code, "good for all 2 rows" in ran.out) == (Exit.OK, True), ran.err
    assert "status says that some want no mail: blocklisted (1); `--where" in ran.err


def test_line_breaks_in_fields_are_said_by_check_and_send(
    zonemta: Callable[..., object], tmp_path: Path, template: Path
) -> None:
    """The one says which option takes them; the other refuses them before it starts Spark."""
    (tmp_path / "list.csv").write_text('email,name\na@b.net,"Ann\nLee"\nb@b.net,Bob\n')
    ran = zonemta("campaign", "check", template, "--list", tmp_path / "list.csv")
    assert "1 rows have line breaks in their fields; `zonemta campaign send --multiline` takes them" in ran.err
    with pytest.raises(CommandError, match="multiline"):
        look(str(tmp_path / "list.csv"), False, "local[*]")
    look(str(tmp_path / "list.csv"), True, "local[*]")


def test_links_that_are_made_when_it_is_sent_are_no_columns(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """A template that prints them is good for each row, for a check as for a preview."""
    (tmp_path / "t.toml").write_text(TEMPLATE.replace("Dear", "{{ unsubscribe_url }} {{ preferences_url }} Dear"))
    (tmp_path / "list.csv").write_text("email,name\na@b.net,Ann\nb@b.net,Bob\n")
    ran = zonemta("campaign", "check", tmp_path / "t.toml", "--list", tmp_path / "list.csv")
    assert (ran.code, "good for all 2 rows" in ran.out) == (Exit.OK, True), ran.err
    shown = zonemta("campaign", "preview", tmp_path / "t.toml", "--list", tmp_path / "list.csv")
    assert "https://links.example/unsubscribe_url" in shown.out


def test_preview_prints_what_would_go_out(zonemta: Callable[..., object]) -> None:
    """One recipient's message, whole."""
    ran = zonemta("campaign", "preview", EXAMPLE, "--list", LIST, "--recipient", "JOSE@example.net")
    message = email.message_from_string(ran.out, policy=email.policy.default)
    assert (ran.code, message["Subject"], message["To"].addresses[0].display_name) == (
        Exit.OK, "José, your May in Málaga", "José Peña",
    )  # fmt: skip
    assert "Hello José!" in message.get_body(("plain",)).get_content()
    assert "For you alone" not in message.get_body(("html",)).get_content()


@pytest.mark.parametrize("asked", ["ü@bücher.de", " Ü@BÜCHER.de", ""])
def test_preview_spells_an_address_as_it_is_sent(
    zonemta: Callable[..., object], tmp_path: Path, template: Path, asked: str
) -> None:
    """The list's spelling with its domain in A-labels, however one asks for it: the message's id is made from it."""
    (tmp_path / "list.csv").write_text("email,name\n Ü@BÜCHER.de,Ada\n")
    ran = zonemta("campaign", "preview", template, "--list", tmp_path / "list.csv", "--recipient", asked)
    assert (ran.code, "To: Ü@xn--bcher-kva.de\n" in ran.out) == (Exit.OK, True)


def test_preview_into_files(zonemta: Callable[..., object], tmp_path: Path, template: Path) -> None:
    """--output writes the bytes, CRLF and all; --html the HTML part."""
    ran = zonemta("campaign", "preview", template, "--field", "name=Ada", "--output", tmp_path / "x.eml")
    assert (ran.code, ran.out) == (Exit.OK, f"{tmp_path / 'x.eml'}\n")
    assert b"To: recipient@example.com\r\nSubject: Hello Ada\r\n" in (tmp_path / "x.eml").read_bytes()
    ran = zonemta("campaign", "preview", EXAMPLE, "--list", LIST, "--html", "--output", tmp_path / "x.html")
    assert "<h1>Hello Ada!</h1>" in (tmp_path / "x.html").read_text()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("email,nam\na@b.example,x", ":1:21: the list has no column 'name'; did you mean nam?"),
        (
            "email,name\na@b.example",
            "list.csv:2: the row has 1 fields, the header 2; correct its separators and quotes",
        ),
        ("email,name\na@b.example,x\nnobody,y", "list.csv:3: To: 'nobody' is not an email address; write name@domain"),
        (
            "who,name\n",
            "no column is known as the recipient's address; it has 'who', 'name'; map one with --map email=COLUMN",
        ),
        (b"email,n\xffme\n", "list.csv: line 1 is not UTF-8; save the list as UTF-8"),
        (b"email,name\na@b.net,J\xfcrgen\n", "list.csv:2: it is not UTF-8; save the list as UTF-8"),
    ],
)
def test_check_finds_what_is_wrong_with_a_list(
    zonemta: Callable[..., object], tmp_path: Path, template: Path, rows: str | bytes, said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Before the first message: line and remedy, exit code 65."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_bytes(rows.encode() if isinstance(rows, str) else rows)
    ran = zonemta("campaign", "check", template, "--list", tmp_path / "list.csv")
    assert (ran.code, ran.out) == (Exit.DATA, "")
    assert said in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), Exit.DATA, "subject: 'name' is undefined" ),
        (("--field", "name"), Exit.USAGE, "is not NAME=VALUE"),
        (("--list", LIST, "--recipient", "x@example.com"), Exit.DATA, "the list has no column 'name'"),
        (("--field", "name=x", "--html"), Exit.DATA, "has no HTML part; omit --html"),
        (("--list", "gone.csv"), Exit.NO_INPUT, "gone.csv: no such file"),
    ],
)  # fmt: skip
def test_previews_mistakes(
    zonemta: Callable[..., object], template: Path, arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    """One sentence that says what to do."""
    ran = zonemta("campaign", "preview", template, *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err.replace("Subject", "subject")


def test_a_recipient_who_is_not_in_the_list(zonemta: Callable[..., object]) -> None:
    """Nobody is invented."""
    ran = zonemta("campaign", "preview", EXAMPLE, "--list", LIST, "--recipient", "x@example.com")
    assert ran.code == Exit.DATA
    assert "x@example.com is not in the list" in ran.err


def test_a_list_in_an_encoding_that_is_named(zonemta: Callable[..., object], tmp_path: Path, template: Path) -> None:
    """Excel's plain CSV: refused with that remedy, and read when it is named; what is no character of it is said."""
    file = tmp_path / "list.csv"
    file.write_bytes(b"email,name\na@b.net,J\xfcrgen\n")
    refused = zonemta("campaign", "check", template, "--list", file, "--rejects", tmp_path / "r.csv")
    assert "or name what it is written in: --encoding cp1252 is Excel's plain CSV" in refused.err
    read = zonemta("campaign", "check", template, "--list", file, "--encoding", "cp1252")
    assert (read.code, "read as CSV in cp1252, commas between columns" in read.err) == (Exit.OK, True)
    assert "J=C3=BCrgen" in zonemta("campaign", "preview", template, "--list", file, "--encoding", "latin1").out
    file.write_bytes(b"email,name\na@b.net,\xfc\x81\n")
    refused = zonemta(
        "campaign", "check", template, "--list", file, "--encoding", "cp1252", "--rejects", tmp_path / "r"
    )
    assert "list.csv:2: it is not cp1252; save the list as UTF-8" in refused.err
    file.write_bytes(bytes(range(128, 200)))
    refused = zonemta("campaign", "check", template, "--list", file)
    assert f"{file}: line 1 is not UTF-8; save the list as UTF-8" in refused.err
    rows = tmp_path / "list.jsonl"
    rows.write_text('{"email": "a@b.net", "name": "x"}\n')
    refused = zonemta("campaign", "check", template, "--list", rows, "--encoding", "cp1252")
    assert (refused.code, "list.jsonl is not CSV; leave it out" in refused.err) == (Exit.DATA, True)


def test_nested_values_are_not_printed(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """They would be text of a program; a column that the template does not name may have them."""
    rows, letter = tmp_path / "list.jsonl", tmp_path / "nested.toml"
    rows.write_text(
        '{"email": "a@b.net", "name": "Ann", "fields": {"city": "Ulm"}}\n{"email": "c@d.net", "name": ["x"]}\n'
    )
    for text, said in (("{{ fields }}", "'fields'"), ("{{ name }}", "'name'")):
        letter.write_text(f'subject = "x"\nfrom = "a@b.net"\ntext = """\n{text}\n"""\n')
        refused = zonemta("campaign", "check", letter, "--list", rows)
        assert f"list.jsonl: the column {said} has nested values; write each as a column of its own" in refused.err
    letter.write_text('subject = "x"\nfrom = "a@b.net"\ntext = """Hello"""\n')
    assert "good for all 2 rows" in zonemta("campaign", "check", letter, "--list", rows).out


def test_check_names_all_bad_rows_of_all_kinds_at_once(
    zonemta: Callable[..., object], tmp_path: Path, template: Path
) -> None:
    """The first fill no screen, the rest is counted; all are in one file that can be mended and checked again."""
    bad = [b"nobody,x", b"a@b.net", b"a@b.net,J\xfcrgen", b"a@b.net,x,y"]
    content = [b"email,name", *(row for row in bad * 13 for row in (row, b"good@b.net,Ann")), b""]
    (tmp_path / "list.csv").write_bytes(b"\n".join(content))
    words = ("campaign", "check", template, "--list", tmp_path / "list.csv", "--rejects", tmp_path / "r.csv")
    ran = zonemta(*words)
    lines = ran.err.splitlines()
    assert len(lines) == 6
    assert lines[0].endswith(
        "list.csv: read as CSV in UTF-8, commas between columns; columns email, name; recipients in email"
    )
    shown = [line.partition("list.csv: ")[2].partition(": ")[0] for line in lines[1:5]]
    assert shown == [f"13 rows (lines {first}, {first + 8}, {first + 16}, …)" for first in (2, 4, 6, 8)]
    assert lines[5] == f"52 of 104 rows are bad; all of them, with reasons, are in {tmp_path / 'r.csv'}"
    rejected = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [int(row["line"]) for row in rejected] == list(range(2, 106, 2))
    assert {row["problem"].partition(";")[0] for row in rejected} == {
        "To: 'nobody' is not an email address", "the row has 1 fields, the header 2", "it is not UTF-8",
        "the row has 3 fields, the header 2",
    }  # fmt: skip
    assert rejected[2]["name"] == "J\\xfcrgen"
    assert (tmp_path / "r.csv").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "sep=;"])
def test_lists_as_spreadsheets_write_them(
    zonemta: Callable[..., object], tmp_path: Path, template: Path, encoding: str, separator: str
) -> None:
    """Separator and characters are seen; addresses may have names; a column such as E-Mail is the recipient's."""
    rows = [
        ["E-Mail", " name "],
        ["Ann <ann@b.net>", "J\u00fcrgen"],
        ['"""M., Bob"" <bob@b.net>"', "1,5"],
        ["mailto:cy@b.net", "x"],
    ]
    between = ";" if separator == "sep=;" else separator
    rows[2][1] = '"1,5"'
    text = "".join(between.join(row) + "\r\n" for row in rows)
    (tmp_path / "list.csv").write_text(("sep=;\r\n" if separator == "sep=;" else "") + text, encoding, newline="")
    ran = zonemta("campaign", "check", template, "--list", tmp_path / "list.csv")
    assert (ran.code, "good for all 3 rows" in ran.out) == (Exit.OK, True), ran.err
    assert ran.err.count("\n") == 1
    shown = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}[between]
    kind = "UTF-16" if encoding.startswith("utf-16") else "UTF-8"
    assert f"read as CSV in {kind}, {shown} between columns; columns E-Mail, name; recipients in E-Mail" in ran.err
    ran = zonemta("campaign", "preview", template, "--list", tmp_path / "list.csv", "--recipient", "bob@b.net")
    assert ("To: bob@b.net\n" in ran.out, "Subject: Hello 1,5\n" in ran.out) == (True, True)


def test_check_takes_maps_and_folders(
    zonemta: Callable[..., object], tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `campaign send` does; what an earlier check left in the folder is no part of the list."""
    people = tmp_path / "people"
    people.mkdir()
    monkeypatch.chdir(people)
    (people / "a.csv").write_text("Kontakt;First name\na@b.net;Ann\n")
    (people / "b.csv").write_text("Kontakt\tFirst name\nb@b.net\tBob\n")
    ran = zonemta("campaign", "check", template, "--list", people)
    assert "b.csv: it is written in UTF-8, tabs between columns, a.csv in UTF-8, semicolons between columns" in ran.err
    (people / "b.csv").unlink()
    (people / "b.tsv").write_text("Kontakt;First name\nb@b.net;Bob\nnobody;Cy\n")
    (people / "README.txt").write_text("no list")
    words = ("campaign", "check", template, "--list", people, "--map", "email=Kontakt", "--map", "name=First name")
    ran = zonemta(*words)
    assert (ran.code, ran.out) == (Exit.DATA, "")
    assert "people/b.tsv:3: To: 'nobody' is not an email address" in ran.err
    assert "1 of 3 row is bad; all of them, with reasons, are in people.rejects.csv" in ran.err
    assert (people / "people.rejects.csv").exists()
    (people / "b.tsv").write_text("Kontakt;First name\nb@b.net;Bob\n")
    assert "good for all 2 rows" in zonemta(*words).out
    ran = zonemta(*words[:-1], "name=Vorname")
    assert (ran.code, "there is no column 'Vorname'; it has Kontakt, First name" in ran.err) == (Exit.DATA, True)


def test_a_campaign_is_done_without_those_who_were_left_out() -> None:
    """Of 597 planned ones 2 are on the suppression list: 595 are all there is to come; names are the quantities'."""
    row = dict.fromkeys(("waiting", "blocked", "complaints", "removed", "deferred", "rate_per_s", "eta_ms"), 0)
    row |= {"accepted": 595, "planned": 597, "suppressed": 2, "delivered": 590, "bounced": 5}
    said = dict(described(row | {"state": "ended", "cause": ""}))
    assert (said["accepted"], said["done"], said["bounced"]) == ("595", "100.0%", 5)
    assert said.keys() - {"state", "done", "rate", "estimated end", "complaints"} <= QUANTITIES.keys()
    half = dict(described(row | {"state": "running", "cause": "", "accepted": 300, "delivered": 295}))
    assert half["accepted"] == "300 of 595"
