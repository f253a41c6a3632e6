"""Header section and chunks of a message that comes in pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.mail.list_id import list_of
from zonemta_py.reception.ingest import Chunks, Ingest, IngestRules

RULES = IngestRules("mx.test", trust_zone=True, header_bytes=1000, hops=5)
PIECES = st.lists(
    st.sampled_from(
        [b"A: b\r\n", b" fold\r\n", b"\r\n", b"text\r\n", b"X-Sending-Zone: z\r\n", b"Date: d\r\n", b"\r\n\r\n"]
    )
)


def arrive(blocks: list[bytes], rules: IngestRules = RULES) -> tuple[bytes, Ingest]:
    arrival = Ingest(rules, Envelope("a@b.test", [Recipient("c@d.test")]), "Received: from x id ", "t1", 0)
    for block in blocks:
        arrival.add(block)
    arrival.finish()
    return b"".join(arrival.chunks.ready) + arrival.chunks.last(), arrival


@given(PIECES, st.lists(st.integers(1, 9), max_size=40))
@settings(max_examples=150)
def test_where_blocks_are_cut_does_not_matter(pieces: list[bytes], cuts: list[int]) -> None:
    """The same message gives the same bytes, fields and zone."""
    message = b"".join(pieces)
    blocks, at = [], 0
    for length in cuts:
        blocks.append(message[at : at + length])
        at += length
    whole, one = arrive([message])
    parts, other = arrive([*blocks, message[at:]])
    assert parts == whole
    assert one.envelope == other.envelope
    assert one.chunks.total == len(whole)


@given(st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=8))
@settings(max_examples=40)
def test_chunks_are_exact(lengths: list[int]) -> None:
    """All but the last have CHUNK_BYTES; the last is never empty unless all is; no byte is lost or moved."""
    chunks, blocks = Chunks(), [bytes([n]) * length for n, length in enumerate(lengths)]
    for block in blocks:
        chunks.add(block)
    assert all(len(chunk) == CHUNK_BYTES for chunk in chunks.ready)
    last = chunks.last()
    assert b"".join([*chunks.ready, last]) == b"".join(blocks)
    assert 0 < len(last) <= CHUNK_BYTES or not any(lengths)


def test_which_list_it_is_of_is_kept_whole() -> None:
    """Also behind a phrase that is longer than what is kept of other fields."""
    for phrase in ("Weekly", "Weekly deals, " * 30, "=?utf-8?q?Angebote_der_Woche_f=C3=BCr_Sie?= " * 8):
        names = set()
        for name in ("Weekly", "products"):
            _, arrival = arrive([f"List-Id: {phrase}\r\n <{name}.shop.example>\r\n\r\nx\r\n".encode()])
            names.add(list_of(arrival.envelope.headers))
        assert names == {"weekly.shop.example", "products.shop.example"}


def test_a_header_section_over_the_limit_is_refused_and_forgotten() -> None:
    """However it comes; a body as long is no matter."""
    for blocks in ([b"A: " + b"x" * 1000 + b"\r\n\r\n"], [b"A: x\r\n"] * 200, [b"A: x"] + [b"x"] * 1000):
        whole, arrival = arrive(blocks)
        assert arrival.refusal is not None
        assert arrival.refusal.code == 552
        assert whole == b""
    assert arrive([b"A: b\r\n", b"body\r\n" * 200])[1].refusal is None
    assert arrive([b"\r\n", b"body\r\n" * 200])[1].refusal is None


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_whatever_is_said_to_us_can_be_kept(value: bytes) -> None:
    """Bytes that are no text, and any length of them: the queue takes the envelope, or the client hears why not."""
    _, arrival = arrive([b"X-Sending-Zone: " + value.replace(b"\n", b"").replace(b"\r", b"") + b"\r\n\r\nx\r\n"])
    zone = arrival.envelope.sending_zone or ""
    assert len(zone) <= 200
    assert zone.encode().decode() == zone
