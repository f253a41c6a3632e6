"""Lists as spreadsheets write them, through Spark: the same people whatever the separator and the characters."""

import csv
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from zonemta_py.pipeline.prepare.plan import plan, rows
from zonemta_py.pipeline.prepare.settings import PlanRefused, Settings
from zonemta_py.pipeline.prepare.source.copies import of_list, plain
from zonemta_py.pipeline.prepare.source.dialect import Dialect, dialect, dialect_of, named
from zonemta_py.pipeline.prepare.source.read import columns, fingerprint, look
from zonemta_py.pipeline.prepare.source.sound import begins, check
from zonemta_py.pipeline.prepare.suppressed import read as read_suppressed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = Settings("may", email="E-Mail", fields={"name": "Name", "note": "Note, long"})
PEOPLE = [
    ["E-Mail", "Name", "Note, long"],
    ["ann@b.net", "J\u00fcrgen", "1,5;2"],
    ["Bob <bob@b.net>", "Bob", ""],
    ["nobody", "Cy", "bad"],
    ['"M., Dan" <DAN@B.net>', "Dan", ""],
    ["", "Eve", "none"],
    ["mailto:fay@b.net", "Fay", ""],
    ["nobody", "Gus", "again"],
]


def written(file: Path, encoding: str, separator: str, first: str = "") -> Path:
    with file.open("w", encoding=encoding, newline="") as text:
        text.write(first)
        csv.writer(text, delimiter=separator).writerows(PEOPLE)
        text.write("broken\r\n")
    return file


@pytest.mark.parametrize(
    ("name", "encoding", "separator", "first"),
    [
        ("list.csv", "utf-8-sig", ";", ""),
        ("list.tsv", "utf-8", "\t", ""),
        ("list.txt", "utf-16", "\t", ""),
        ("list.csv", "utf-16-be", "|", ""),
        ("list.csv", "utf-8", ";", "sep=;\r\n"),
    ],
)
def test_a_list_is_read_as_it_is_written(
    spark: "SparkSession", tmp_path: Path, name: str, encoding: str, separator: str, first: str
) -> None:
    """Everybody once, with the fields; all rejected rows are in one file with line and reason, named as the list is."""
    file = written(tmp_path / name, encoding, separator, first)
    look(str(file))
    copies = tmp_path / "may.plan.copy"
    with plain(str(file), copies) as copy:
        assert copies.exists() == (copy != str(file)) == (encoding.startswith("utf-16") or bool(first))
        assert not copies.exists() or copies.stat().st_mode & 0o777 == 0o700
        assert columns(spark, copy) == PEOPLE[0]
        made = plan(spark, SETTINGS, copy, tmp_path / "may.plan", name=lambda text: of_list(text, str(file), copies))
    assert not copies.exists()
    bodies = [json.loads(row.body) for row in rows(spark, made.folder).collect()]
    assert sorted(one for body in bodies for one in body["recipients"]) == [
        ["DAN@b.net", "Dan", ""], ["ann@b.net", "J\u00fcrgen", "1,5;2"], ["bob@b.net", "Bob", ""],
        ["fay@b.net", "Fay", ""],
    ]  # fmt: skip
    before = bool(first)
    rejected = list(csv.reader((made.folder / "rejects.csv").read_text().splitlines()))
    assert rejected == [
        ["file", "line", "problem", "E-Mail", "Name", "Note, long"],
        [str(file), str(4 + before), "syntax", "nobody", "Cy", "bad"],
        [str(file), "", "no address", "", "Eve", "none"],
        [str(file), str(8 + before), "syntax", "nobody", "Gus", "again"],
        [str(file), str(9 + before), "bad row", "broken"],
    ]
    assert made.report["rejected"] == 4
    assert {row["file"] for row in made.report["examples"]} == {str(file)}
    assert [folder.stat().st_mode & 0o777 for folder in (made.folder, made.folder / "rejects.csv")] == [0o700, 0o600]


@pytest.mark.parametrize(
    ("text", "encoding", "said"),
    [
        ("a@x.net;Hélène Lefèvre;Orléans", "cp1252", "'Hélène' is cp1252, 'Hélčne' is cp1250"),
        ("a@x.net;Łukasz Żółć;Łódź", "cp1250", "is cp1250"),
        ("a@x.net;Иван;Москва", "cp1251", "'Иван' is cp1251"),
        ("a@x.net;Jürgen", "mac_roman", "'Jürgen' is mac_roman"),
    ],
)
def test_what_a_word_would_be_is_said(tmp_path: Path, text: str, encoding: str, said: str) -> None:
    """So that a person can choose; nothing is guessed."""
    file = tmp_path / "list.csv"
    file.write_bytes(b"email;name;city\n" + b"b@x.net;Bob;Bonn\n" * 3 + text.encode(encoding) + b"\nc@x.net;Cy;Ulm\n")
    with pytest.raises(PlanRefused, match=r"line 5 is not UTF-8; save .*encoding cp1252") as refused:
        check([file], "csv", multiline=False)
    assert said in str(refused.value)
    file.write_bytes(text.replace("a@x.net", "email").encode(encoding) + b"\n")
    with pytest.raises(PlanRefused, match="line 1 is not UTF-8") as refused:
        begins([file], "csv", multiline=False)
    assert said in str(refused.value)


@pytest.mark.parametrize(("encoding", "said"), [("cp1252", "cp1252"), ("ISO-8859-1", "iso8859-1")])
def test_an_encoding_that_is_named(tmp_path: Path, encoding: str, said: str) -> None:
    """Excel's plain CSV is read where it is named, and only where the file is not UTF-8: who saves it as such need not
    take the option away."""
    file, copies = written(tmp_path / "list.csv", encoding, ";"), tmp_path / "may.plan.copy"
    with pytest.raises(PlanRefused, match=r"is not UTF-8; save .* or name what it is .*encoding cp1252"):
        fingerprint(None, str(file), SETTINGS)  # type: ignore[arg-type]
    look(str(file), encoding=named(encoding))
    assert str(dialect_of(file, named(encoding))) == f"{said}, semicolons between columns"
    with plain(str(file), copies, named(encoding)) as copy:
        assert Path(copy).read_bytes() == file.read_bytes().decode(encoding).encode()
    written(file, "utf-8", ";")
    assert dialect_of(file, named(encoding)).plain()
    for wrong in ("klingon", "base64", "utf-16", "utf-7\x00"):
        with pytest.raises(PlanRefused, match=r"--encoding .*: is not known; write cp1252"):
            named(wrong)


def test_files_of_one_list_are_written_alike(tmp_path: Path) -> None:
    """Spark reads them all with one separator."""
    written(tmp_path / "a.csv", "utf-8", ";")
    written(tmp_path / "b.csv", "utf-8", ",")
    with pytest.raises(PlanRefused, match=r"b.csv: it is written in UTF-8, commas between columns, a.csv in UTF"):
        look(str(tmp_path))


def test_a_copy_is_not_left_behind(tmp_path: Path) -> None:
    """Whatever ends the planning; what cannot be decoded is refused."""
    file = tmp_path / "list.csv.gz"
    file.write_bytes(gzip.compress("email\na@b.net\n".encode("utf-16") + b"\x00"))
    with pytest.raises(PlanRefused, match=r"list.csv.gz: it is not UTF-16"), plain(str(file), tmp_path / "copy"):
        pass
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_nobody_on_a_suppression_file_is_overlooked(spark: "SparkSession", tmp_path: Path, encoding: str) -> None:
    """For a semicolon, a name beside the address, or characters: they would get mail they had left."""
    file = tmp_path / "left.csv"
    file.write_text("Name;E-Mail;kind\nAnn;Ann <ANN@b.net>;complaint\nBob;mailto:bob@b.net;unsubscribe\n", encoding)
    found = {(row.address.lower(), row.kind) for row in read_suppressed(spark, str(file)).collect()}
    assert found == {("ann@b.net", "complaint"), ("bob@b.net", "unsubscribe")}


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("email\na@b.net\n", ","),
        ("email;name, first\na@b.net;x\n", ";"),
        ('"a;b;c",email\n1,a@b.net\n', ","),
        ("email;a\tb\na@b.net;x\n", ";"),
        ("email,a;b\na@b.net,x;y\nc@d.net,5", ","),
        ("email|name\n", "|"),
        ("", ","),
    ],
)
def test_the_separator_is_seen(text: str, separator: str) -> None:
    """By the header and the rows that agree with it; in quotes nothing separates."""
    assert dialect(text.encode()) == Dialect("utf-8-sig", separator)
    assert dialect(text.encode("utf-16")).separator == separator
