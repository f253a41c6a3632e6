"""The dialect of a CSV file, from its beginning: encoding and separator; and which files are lists at all.

Spreadsheets write commas, semicolons (where the comma is the decimal sign), tabs, or bars; UTF-8 with or without a byte
order mark, or UTF-16; and sometimes a first line `sep=;`. The separator is the one with which most of the first rows
have as many fields as the header, and of those the one with most fields. Other encodings are never guessed, since
names would be wrong in many letters without anybody's seeing it: an error says what a word would be in each, and what
the operator names counts for files that are not UTF-8.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from zonemta_py.pipeline.prepare.settings import PlanRefused

SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json",
    ".parquet": "parquet",
}  # fmt: skip
ALONE = {".txt": "csv"}
"""Of these a file that is named is a list; one that lies in a folder beside lists is not."""
REJECTS = ".rejects.csv"
HEAD_BYTES = 1 << 16
_ROWS = 50
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SPOKEN = {"utf-8-sig": "UTF-8", "utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16"}
_BLOCK_BYTES = 1 << 20
NAME_IT = "save the list as UTF-8, or name what it is written in: --encoding cp1252 is Excel's plain CSV"
"""The remedy for a CSV file that is not UTF-8."""
_OTHERS = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1257", "mac_roman")
"""Of spreadsheets, by how many people use them."""
_WORD = re.compile(rb"[^\s,;|\"@<>]{0,40}[\x80-\xff][^\s,;|\"@<>]{0,40}")
_HEADS = ("email", "emailaddress", "mail", "mailaddress", "emailadresse", "mailadresse", "address", "recipient")
ADDRESS_COLUMNS = ("email", "address", "recipient")
_HASHES = ("sha256", "emailsha256", "sha256email", "hash", "hashedemail", "emailhash")
DOMAINS = ("domain", "domains")


def name_it(text: bytes) -> str:
    """The remedy, with what a word of that text would be in each encoding that makes a word of it."""
    found, words = _WORD.search(text), dict[str, str]()
    for encoding in _OTHERS if found else ():
        try:
            word = found[0].decode(encoding) if found else ""
        except UnicodeDecodeError:
            continue
        if all(one.isalpha() or one in "-'’.–0123456789" for one in word) and word not in words:
            words[word] = encoding
    if not words:
        return NAME_IT
    return f"{NAME_IT} ({', '.join(f'{word!r} is {encoding}' for word, encoding in words.items())})"


class Dialect(NamedTuple):
    """encoding: a codec of Python that takes the byte order mark off. announced: the first line is `sep=…`."""

    encoding: str = "utf-8-sig"
    separator: str = ","
    announced: bool = False

    def plain(self) -> bool:
        """It is UTF-8 from its header on, as Spark wants it."""
        return self.encoding == "utf-8-sig" and not self.announced

    def __str__(self) -> str:
        return f"{_SPOKEN.get(self.encoding, self.encoding)}, {SEPARATORS[self.separator]} between columns"


def named(encoding: str) -> str:
    """The encoding as Python calls it, "" for none. Raises PlanRefused for what is none, or one of whole characters."""
    if not encoding:
        return ""
    try:
        found = codecs.lookup(encoding)
        if b'a,;\t|"\n'.decode(found.name) != 'a,;\t|"\n':
            raise LookupError
    except (LookupError, ValueError):
        raise PlanRefused(f"--encoding {encoding!r}: is not known; write cp1252, cp1250, latin1 or another") from None
    return found.name


def dialect_of(file: Path, encoding: str = "") -> Dialect:
    """encoding: as `named` says, of a file that is not UTF-8. Raises OSError, PlanRefused for what cannot be
    decompressed."""
    try:
        with _bytes(file) as content:
            head = content.read(HEAD_BYTES)
        return dialect(head, encoding if encoding and not _is_utf_8(file) else "")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PlanRefused(f"{file}: it cannot be decompressed ({error}); compress it again") from None


def dialect(head: bytes, other: str = "") -> Dialect:
    """head: the beginning of a file; its last line may be cut. other: what it is written in instead of UTF-8."""
    encoding = _encoding(head)
    if encoding == "utf-8-sig":
        encoding = other or encoding
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
    first, _, rest = text.partition("\n")
    if first.strip().lower().startswith("sep=") and first.strip()[4:5] in SEPARATORS:
        return Dialect(encoding, first.strip()[4], announced=True)
    if first.lower().startswith("sep=\t"):
        return Dialect(encoding, "\t", announced=True)
    whole = text if len(head) < HEAD_BYTES or not rest else text[: text.rindex("\n") + 1]
    return Dialect(encoding, max(SEPARATORS, key=lambda separator: _fit(whole, separator)))


def opened(file: Path, dialect: Dialect, errors: str = "strict") -> IO[str]:
    """The text from its header on, line ends as they are; packed or not. Raises OSError."""
    if errors == "surrogateescape" and dialect.encoding.startswith("utf-16"):
        errors = "replace"  # the escapes are of single bytes
    text = io.TextIOWrapper(_bytes(file), dialect.encoding, errors, newline="")
    if dialect.announced:
        text.readline()
    return text


def kind_of(list_: str) -> str:
    """ "csv", "json", "parquet" or "table". Raises PlanRefused."""
    path = Path(list_)
    if path.is_dir():
        kinds = {_kind(file) for file in files(list_)}
        if len(kinds) != 1:
            found = " and ".join(sorted(kinds)) or "neither CSV nor JSON lines nor Parquet"
            raise PlanRefused(f"{list_}: the folder has {found}; keep files of one kind in it")
        return kinds.pop()
    if kind := _kind(path) or ALONE.get(_unpacked(path).suffix.lower(), ""):
        return kind
    if path.exists():
        raise PlanRefused(f"{list_}: its format is unknown; its name must end in .csv, .jsonl or .parquet")
    return "table"


def files(list_: str) -> list[Path]:
    """The local files that are the list, in the order of their names; none for a table or a remote path."""
    path = Path(list_)
    if path.is_dir():
        found = (file for file in path.rglob("*") if _kind(file) and file.is_file())
        return sorted(file for file in found if not file.name.endswith(REJECTS))
    return [path] if path.is_file() else []


def is_nested(column: str) -> str:
    """What is wrong with a column whose values are objects or lists, if a template prints it."""
    return f"the column {column!r} has nested values; write each as a column of its own, such as {column}_name"


def recipient_column(names: list[str]) -> str:
    """The column of the recipients, "" if there is none: email, address, recipient, else the like of E-Mail."""
    for name in ADDRESS_COLUMNS:
        if name in names:
            return name
    folded = {"".join(filter(str.isalnum, name.lower())): name for name in reversed(names)}
    return next((folded[head] for head in _HEADS if head in folded), "")


def listed_column(names: list[str]) -> str:
    """The column of a suppression list that says whom it is about: addresses, else hashes of them, else DOMAINS; "" if
    there is none. names: in lower case."""
    if address := "address" if "address" in names else recipient_column(names):
        return address
    folded = {"".join(filter(str.isalnum, name)): name for name in reversed(names)}
    return next((folded[head] for head in (*_HASHES, *DOMAINS) if head in folded), "")


def _kind(path: Path) -> str:
    """Of a file by its name; "" if that says nothing."""
    return SUFFIXES.get(_unpacked(path).suffix.lower(), "")


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _bytes(file: Path) -> IO[bytes]:
    return gzip.open(file) if file.suffix == ".gz" else file.open("rb")  # type: ignore[return-value]


def _is_utf_8(file: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _bytes(file) as content:
        try:
            while block := content.read(_BLOCK_BYTES):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if zeros and zeros.count(0) * 2 > len(zeros):  # mostly ASCII: every other byte is none
            return encoding
    return "utf-8-sig"


def _fit(text: str, separator: str) -> tuple[float, int]:
    """How many of the first rows have the header's number of fields, and that number; (0, 0) for one column."""
    try:
        rows = list(islice(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=separator)), _ROWS))
    except csv.Error:
        return 0.0, 0
    if not rows or len(rows[0]) < 2:
        return 0.0, 0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows), len(rows[0])
