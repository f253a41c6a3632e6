"""The short form of `scripts/fuzz`: what has been found, and some more of its like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import targets

CORPUS = Path(__file__).parent / "corpus"
KEPT = sorted(CORPUS.glob("*/*"))
WORDS = [
    b"\r\n", b"\r", b"\n", b".", b"\r\n.\r\n", b"\0", b"\xff", b"=?utf-8?q?", b"?=", b"--a", b"--", b'"', b"(", b")",
    b"<", b">", b"@", b";", b"250-", b"250 ", b"PROXY ", b"UNKNOWN", b"\r\n\r\n", b"From: ", b" ", b"EHLO x\r\n",
    b"MAIL FROM:<>\r\n", b"RCPT TO:<c@d.test>\r\n", b"DATA\r\n", b"RSET\r\n", b"boundary=", b"*0*=", b"''", b"\x93",
    b"\xdc", b"\xc4", b"Content-Type: multipart/mixed; boundary=a\r\n",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    targets.close()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found_stays_mended(path: Path) -> None:
    """Each input of the corpus keeps its target's rules; so do its beginnings, and it sent many times."""
    data = path.read_bytes()
    for at in {len(data), len(data) // 2, len(data) - 1}:
        targets.run(path.parent.name, data[:at])
    targets.run(path.parent.name, data * (targets.BYTES_MAX // len(data)))


@pytest.mark.parametrize("target", targets.TARGETS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_bytes_break_a_rule(target: str, data: st.DataObject) -> None:
    """Made of words that mean something to somebody, of pieces of the corpus, and of chance."""
    kept = [path.read_bytes() for path in KEPT if path.parent.name == target]
    words = st.sampled_from(WORDS)
    piece = st.one_of(words, st.sampled_from(kept), st.binary(max_size=8), words.map(lambda word: word * 100))
    targets.run(target, b"".join(data.draw(st.lists(piece, max_size=12))))


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    """Whose inputs are small."""
    assert {path.parent.name for path in KEPT} == set(targets.TARGETS)
    assert all(path.stat().st_size <= 4_000 for path in KEPT)
