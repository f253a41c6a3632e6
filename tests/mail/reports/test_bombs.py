"""What would unpack, expand or multiply is refused before it does: how much is read of it is counted, not timed
(`scripts/trials/reports` measures both). Whatever is in a file, nothing but ReportRefused is raised."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from contextlib import suppress

import pytest

from tests.mail.reports.makers import DMARC, TLS, gzipped, is_ours, report, row, zipped
from zonemta_py.mail.reports import unpacking
from zonemta_py.mail.reports.letters import read_report, read_reports
from zonemta_py.mail.reports.unpacking import ReportRefused, unpack

HEAD = report("R", "1", row()).encode().partition(b"<record>")[0]
ROW = row().encode()


def repeated(block: bytes, times: int) -> bytes:
    stream = zlib.compressobj(9, wbits=31)
    return b"".join(stream.compress(block) for _ in range(times)) + stream.flush()


def archive(names: list[str], content: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name in names:
            made.writestr(name, content)
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        info = tarfile.TarInfo("report.xml")
        info.size = len(HEAD)
        made.addfile(info, io.BytesIO(HEAD))
    return file.getvalue()


def laughs() -> bytes:
    said = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    return f'<?xml version="1.0"?><!DOCTYPE feedback [<!ENTITY a0 "ha">{said}]><feedback>&a9;</feedback>'.encode()


BOMBS = {
    "gzip of zeros": (repeated(bytes(1 << 20), 200), "neither XML nor JSON"),
    "blanks behind XML": (gzip.compress(HEAD + b" " * 50_000_000), "64 KB without a tag"),
    "text behind XML": (gzip.compress(HEAD + (b"x" * 60_000 + b"<b/>") * 500), "more than 8 MB"),
    "a long attribute": (gzip.compress(b"<feedback a='" + b"x" * 5_000_000), "64 KB without a tag"),
    "zip of zips": (zipped("a.zip", zipped("b.zip", zipped("c.xml", "<feedback/>"))), "archive within an archive"),
    "gzip of gzip": (gzip.compress(gzip.compress(HEAD)), "archive within an archive"),
    "100,000 members": (archive([f"{n}.xml" for n in range(100_000)]), "more than 10 members"),
    "zip of zeros": (zipped("a.xml", bytes(50_000_000)), "neither XML nor JSON"),
    "zip of rows": (zipped("a.xml", HEAD + ROW * 30_000), "more than 10,000 rows|more than 8 MB"),
    "laughs": (laughs(), "declares a document type"),
    "laughs in zip": (zipped("a.xml", laughs()), "declares a document type"),
    "an external entity": (b'<!DOCTYPE feedback SYSTEM "file:///etc/passwd"><feedback></feedback>', "document type"),
    "rows": (gzip.compress(HEAD + ROW * 100_000), "more than 10,000 rows|more than 8 MB"),
    "empty rows": (gzip.compress(HEAD + b"<record/>" * 100_000 + b"</feedback>"), "more than 10,000 rows"),
    "tags": (gzip.compress(HEAD + b"<a/>" * 1_000_000), "more than 600,000 tags"),
    "deep": (gzip.compress(HEAD + b"<a>" * 500_000), "nested more than 16 deep"),
    "a number of 5,000 digits": (HEAD + ROW.replace(b">10<", b">" + b"9" * 5_000 + b"<"), "a count that is no number"),
    "a large number": (HEAD + ROW.replace(b">10<", b">9e300<"), "a count above"),
    "a late time": (report("R", "1", row(), begin="9" * 20).encode(), "no time that there could be"),
    "tar": (gzip.compress(tarred()), "neither XML nor JSON"),
    "bzip2": (bz2.compress(HEAD), "neither as gzip nor as zip"),
    "cut gzip": (gzip.compress(HEAD + ROW)[:-20], "cut off"),
    "cut XML": (gzip.compress(HEAD + ROW), "cut off or damaged"),
    "cut zip": (zipped("a.xml", HEAD)[:-30], "no directory"),
    "deep JSON": (b'{"policies":' + b"[" * 40_000, "cut off or damaged"),
    "wide JSON": (gzip.compress(b'{"policies":[' + b"{}," * 300_000 + b"{}]}"), "50,000 values"),
    "digits in JSON": (b'{"policies":[],"report-id":' + b"9" * 900_000 + b"}", "cut off or damaged"),
    "long JSON": (gzip.compress(b'{"policies":["' + b"a" * 50_000_000 + b'"]}'), "more than 1 MB"),
}


@pytest.mark.parametrize(("content", "why"), BOMBS.values(), ids=BOMBS)
def test_bombs(content: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than the bound is unpacked, twice at most, and little of it is ever in memory."""
    given, bounded = [0], unpacking._bounded

    def counting(pieces):  # type: ignore[no-untyped-def]
        for piece in bounded(pieces):
            given[0] += len(piece)
            yield piece

    monkeypatch.setattr(unpacking, "_bounded", counting)
    tracemalloc.start()
    try:
        with pytest.raises(ReportRefused, match=why):
            read_report(content, is_ours)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert given[0] <= 2 * unpacking.UNPACKED_BYTES_MAX + 4 * unpacking.PIECE_BYTES
    assert peak < 16_000_000


def test_members_are_counted_before_the_directory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the end of the archive lies about their number: the directory's size is bounded, too."""
    many = bytearray(archive([f"{n:0100}.xml" for n in range(200)]))
    at = many.rfind(b"PK\x05\x06")
    many[at + 8 : at + 12] = struct.pack("<2H", 1, 1)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(ReportRefused, match="more than 10 members"):
        unpack(bytes(many))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_it_is(seed: int) -> None:
    """Bytes of good reports changed, cut and doubled, in their message and as a file."""
    chance = random.Random(seed)
    for _, message, _ in chance.sample([*DMARC, *TLS], 6):
        spoilt = bytearray(message)
        for _ in range(chance.randrange(1, 30)):
            at = chance.randrange(len(spoilt))
            spoilt[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        read_reports(bytes(spoilt[: chance.randrange(1, len(spoilt) + 1)]), is_ours)
    for plain in (report("R", "1", row(), row()).encode(), b'{"policies":[{"policy":{}}],"report-id":"x"}'):
        content = bytearray(plain)
        for _ in range(chance.randrange(1, 9)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        for one in (bytes(content), gzipped(bytes(content)), zipped("r", bytes(content))):
            with suppress(ReportRefused):
                read_report(one, is_ours)
