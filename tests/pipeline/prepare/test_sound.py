"""A list is looked at before Spark is: what a person must decide is not guessed."""

import gzip
from pathlib import Path

import pytest

from zonemta_py.pipeline.prepare.settings import PlanRefused
from zonemta_py.pipeline.prepare.source import sound


def refusal(files: dict[str, bytes], folder: Path, kind: str = "csv", multiline: bool = False) -> str:
    """What `check` says of files with these contents; "" if it is content."""
    paths = []
    for name, content in files.items():
        paths.append(folder / name)
        paths[-1].write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    try:
        sound.check(paths, kind, multiline)
    except PlanRefused as refused:
        return str(refused).replace(str(folder) + "/", "")
    return ""


GOOD = 'email,name\njürgen@b.net,"Jürgen ""J"", M"\nann@b.net,5" disk\nbob@b.net,""\n'.encode()


@pytest.mark.parametrize("content", [GOOD, b"\xef\xbb\xbf" + GOOD, GOOD.replace(b"\n", b"\r\n"), GOOD[:-1], b""])
def test_ordinary_lists_are_good(tmp_path: Path, content: bytes) -> None:
    """With a byte order mark, with CRLF, with escaped quotes and a quote that stands in a field."""
    assert refusal({"a.csv": content}, tmp_path) == ""
    assert refusal({"a.csv.gz": content}, tmp_path) == ""


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_text_that_is_not_utf_8_is_refused(tmp_path: Path, encoding: str) -> None:
    """Names would go out with signs of replacement."""
    content = "email,name\nann@b.net,Ann\nj@b.net,Jürgen\n".encode(encoding)
    assert "is not UTF-8; save the list as UTF-8" in refusal({"a.csv": content}, tmp_path)
    if encoding == "cp1252":
        assert refusal({"a.csv": content}, tmp_path).startswith("a.csv: line 3 ")


@pytest.mark.parametrize("tail", ["", "\n", '\nbob@b.net,"fine"\n'])
def test_a_quote_that_does_not_end_names_its_line(tmp_path: Path, tail: str) -> None:
    """Else the field would lose its rest, or a person her row; --multiline says that line breaks are meant."""
    content = ('email,name\nann@b.net,Ann\ncy@b.net,"two' + tail).encode()
    assert refusal({"a.csv": content}, tmp_path).startswith("a.csv: line 3 has a quote that is not closed on it")
    assert refusal({"a.csv": content}, tmp_path, multiline=True) == ""
    assert refusal({"a.jsonl": content}, tmp_path, kind="json") == ""


def test_a_block_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside of a character, of a quoted field, of a line end."""
    for size in range(1, 24):
        monkeypatch.setattr(sound, "_BLOCK_BYTES", size)
        assert refusal({"a.csv": GOOD}, tmp_path) == ""
        assert refusal({"a.csv": GOOD + b'd@b.net,"open\n'}, tmp_path).startswith("a.csv: line 5 has a quote")
        assert refusal({"a.csv": GOOD + b"d@b.net,\xff\n"}, tmp_path).startswith("a.csv: line 5 is not UTF-8")


def test_all_files_of_a_folder_have_one_header(tmp_path: Path) -> None:
    """Columns are found by the first file's: in another order people would get each other's fields."""
    said = refusal({"a.csv": b"email,name\n", "b.csv": b"name,email\n"}, tmp_path)
    assert said.startswith("b.csv: its columns are name, email, but those of a.csv are email, name")
    assert refusal({"a.csv": b"email,name\n", "b.csv": b"\xef\xbb\xbfemail,name\r\n"}, tmp_path) == ""


def test_hidden_names_are_refused(tmp_path: Path) -> None:
    """Spark would read nothing of them, and say nothing."""
    assert refusal({"_a.csv": GOOD}, tmp_path).startswith("_a.csv: Spark skips files whose names begin with _")


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("email,name,name", "its header has the column 'name' twice; rename or remove one of them"),
        ("Email,name,email", "its header has the columns 'Email' and 'email'; rename or remove one of them"),
        ("email,,", ""),
        ('email,"""', ""),
    ],
)
def test_a_name_stands_once_in_a_header(tmp_path: Path, header: str, said: str) -> None:
    """Spark would call both something else, or not know which is meant; columns without a name are nobody's."""
    for name in ("a.csv", "a.csv.gz"):
        found = refusal({name: f"{header}\n".encode()}, tmp_path, multiline=True)
        assert found == (said and f"{name}: {said}")


@pytest.mark.parametrize("content", ['[\n {"email": "a@b.net"},\n', '\n[{"email": "a@b.net"},\n', '{\n "email": 1\n}'])
def test_json_over_several_lines_is_refused(tmp_path: Path, content: str) -> None:
    """Spark would take each line for a broken row; an array on one line it reads."""
    said = refusal({"a.json": content.encode()}, tmp_path, kind="json")
    assert said.startswith("a.json: its JSON values span lines; write one object per line")
    assert refusal({"a.json": b'\xef\xbb\xbf\n[{"email": "a@b.net"}]\n'}, tmp_path, kind="json") == ""


def test_what_cannot_be_unpacked_is_refused(tmp_path: Path) -> None:
    """Cut off, no gzip at all, or with a suffix that Spark does not know: it would read what is packed as text."""
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(GOOD)[:-12])
    (tmp_path / "b.csv.gz").write_bytes(GOOD)
    (tmp_path / "c.csv.GZ").write_bytes(gzip.compress(GOOD))
    for name, said in (
        ("a", "cannot be decompressed"),
        ("b", "cannot be decompressed"),
        ("c", "lower case; rename it"),
    ):
        with pytest.raises(PlanRefused, match=said):
            sound.check([next(tmp_path.glob(f"{name}.*"))], "csv", multiline=False)
