"""`zonemta campaign`: check and preview."""

import email
import email.policy
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.cli.errors import Exit

EXAMPLE = Path("config/newsletter")
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
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert f"good for all 2 rows of {LIST}" in ran.out
    assert zonemta("campaign", "check", EXAMPLE).out == f"{EXAMPLE}: good\n"


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
        ("email,name\na@b.example", "list.csv:2: the row has 1 fields, the header 2; mend its commas and quotes"),
        ("email,name\na@b.example,x\nnobody,y", "list.csv:3: To: 'nobody' is no e-mail address; write name@domain"),
        ("email,first name,name\n", "list.csv:1: a template cannot name the column 'first name'"),
        ("mail,name\n", "no column says who the recipient is; name one of them email"),
        (b"email,name\n\xff", "this is not CSV in UTF-8"),
    ],
)
def test_check_finds_what_is_wrong_with_a_list(
    zonemta: Callable[..., object], tmp_path: Path, template: Path, rows: str | bytes, said: str
) -> None:
    """Before the first message: line and remedy, exit code 65."""
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
        (("--field", "name=x", "--html"), Exit.DATA, "has no HTML; leave --html out"),
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


def test_check_shows_the_first_bad_rows_and_counts_the_rest(
    zonemta: Callable[..., object], tmp_path: Path, template: Path
) -> None:
    """A list that is wrong everywhere fills no screen."""
    (tmp_path / "list.csv").write_text("email,name\n" + "nobody,x\n" * 30)
    ran = zonemta("campaign", "check", template, "--list", tmp_path / "list.csv")
    assert ran.err.splitlines()[-1] == "and 10 more rows"
    assert len(ran.err.splitlines()) == 21
