"""A DMARC aggregate report (RFC 7489 appendix C, RFC 9990), read: who saw how many messages of which sources, and
whether they were aligned.

Makers differ: with a namespace and without, with and without a version, empty elements, blanks, several results, none.
Names alone count here, at their place below `record`, and what is missing is derived or stays empty. Whether the domain
passed is what the receiver says in `policy_evaluated`; without that it follows from the results and their domains.

No library: parsedmarc 11, the best kept, bounds what it unpacks too, but is a whole program, which brings some thirty
packages along, with clients of mailboxes and databases, and makes objects of all of a report. Expat is Python's own: it
stops here at the first DOCTYPE, before there is an entity, which is all that defusedxml would add.

Failures: ReportRefused, one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from xml.parsers import expat

from zonemta_py.mail.reports.unpacking import ROWS_MAX, Pieces, ReportRefused
from zonemta_py.mail.reports.values import COUNT_MAX, address, count, domain, line, time_s

DEPTH_MAX = 16
TEXT_CHARACTERS_MAX = 1_000
RESULTS_MAX = 20
"""Of one row: signatures, reasons."""
KEPT_MAX = 500
"""Rows that are kept of a report: ours first, then those with the most messages. The others are summed up, without
their addresses."""
DAY_S = 86_400
_BARE = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)")
_HELD = 12
"""A reference is not longer."""
_META, _POLICY, _ROW, _EVALUATED = "report_metadata", "policy_published", "row", "policy_evaluated"
_PUBLISHED = ("p", "sp", "np", "pct", "adkim", "aspf", "fo", "testing", "discovery_method")


class Source(NamedTuple):
    """Messages of one address that were judged alike. ip: "" unknown. dkim, spf: "pass" if that was aligned, else what
    the receiver says. disposition: what was done with them. domain: of From. signed: domains whose signature was valid;
    envelope: the domain that SPF was checked for, and spf_result its result. reasons: why the policy was not
    followed."""

    ip: str
    domain: str
    disposition: str
    dkim: str
    spf: str
    signed: tuple[str, ...] = ()
    envelope: str = ""
    spf_result: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether DMARC passed."""
        return "pass" in (self.dkim, self.spf)


class DmarcReport(NamedTuple):
    """org: who says so, by its own word. begin_s, end_s: UNIX time. policy: that was published. sources: with their
    messages."""

    org: str
    id: str
    contact: str
    begin_s: int
    end_s: int
    domain: str
    policy: dict[str, str]
    errors: tuple[str, ...]
    sources: dict[Source, int]


def read_dmarc(pieces: Pieces) -> DmarcReport:
    """Raises ReportRefused."""
    try:
        return _Reading().of(pieces(), None)
    except expat.ExpatError as error:
        if error.code != expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]:
            raise ReportRefused("its XML is cut off or damaged") from None
    try:  # it says that it is UTF-8, or nothing, and is not
        return _Reading().of(pieces(), "iso-8859-1")
    except expat.ExpatError:
        raise ReportRefused("its XML is cut off or damaged") from None


def told(report: DmarcReport, ours: Callable[[str], bool]) -> dict[str, Any]:
    """As it is recorded. ours: whether mail of that IP address is sent by us."""
    rows = [(ours(source.ip), source, number) for source, number in report.sources.items()]
    rows.sort(key=lambda row: (not row[0], -row[2], row[1]))
    sums = {name: sum(number for own, source, number in rows if fits(own, source.passed)) for name, fits in _SUMS}
    shown = [_shown(*row) for row in rows[:KEPT_MAX]]
    rest = dict[tuple[bool, str, str], int]()
    for own, source, number in rows[KEPT_MAX:]:
        alike = own, _judged(source.dkim == "pass"), _judged(source.spf == "pass")
        rest[alike] = rest.get(alike, 0) + number
    shown += [
        _shown(own, Source("", report.domain, "", dkim, spf), number) for (own, dkim, spf), number in rest.items()
    ]
    value = {
        "org": report.org, "id": report.id, "contact": report.contact, "begin_s": report.begin_s,
        "end_s": report.end_s, "domain": report.domain, "policy": report.policy, "errors": list(report.errors),
        **sums, "rows": shown, "left_out": max(0, len(rows) - KEPT_MAX),
    }  # fmt: skip
    return {name: one for name, one in value.items() if one not in ("", [], {}) or name == "rows"}


_SUMS: tuple[tuple[str, Callable[[bool, bool], bool]], ...] = (
    ("messages", lambda own, passed: True),
    ("passed", lambda own, passed: passed),
    ("ours", lambda own, passed: own),
    ("ours_passed", lambda own, passed: own and passed),
)


def _shown(own: bool, source: Source, number: int) -> dict[str, Any]:
    row = {"ip": source.ip, "count": number, "ours": own, "passed": source.passed} | source._asdict()
    row |= {"signed": list(source.signed), "reasons": list(source.reasons)}
    return {name: value for name, value in row.items() if value not in ("", [])}


class _Reading:
    """One report."""

    def __init__(self) -> None:
        self._path: list[str] = []
        self._text: list[str] = []
        self._length = 0
        self._errors: list[str] = []
        self._meta: dict[str, str] = {}
        self._policy: dict[str, str] = {}
        self._row: dict[str, str] = {}
        self._signatures: list[dict[str, str]] = []
        self._spf: list[dict[str, str]] = []
        self._reasons: list[str] = []
        self._sources: dict[Source, int] = {}
        self._rows = 0

    def of(self, pieces: Iterator[bytes], encoding: str | None) -> DmarcReport:
        """Raises ReportRefused, ExpatError."""
        parser = expat.ParserCreate(encoding)
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _no_entities
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._said
        first = True
        for piece in _with_references(pieces):
            if first and encoding is None and piece.startswith(b"<?xml"):
                piece = _honest(piece)
            first = False
            parser.Parse(piece, False)
        parser.Parse(b"", True)
        return self._report()

    def _start(self, name: str, _: dict[str, str]) -> None:
        name = _bare_name(name)
        path = self._path
        above = path[-1] if path else ""
        path.append(name)
        self._text.clear()
        self._length = 0
        if name == "record":
            self._rows += 1
            self._row, self._signatures, self._spf, self._reasons = {}, [], [], []
            if self._rows > ROWS_MAX:
                raise ReportRefused(f"it has more than {ROWS_MAX:,} rows")
        elif above == "auth_results":
            found = self._signatures if name == "dkim" else self._spf
            if len(found) < RESULTS_MAX or name != "dkim":
                found.append({})
        elif not above and name != "feedback":
            raise ReportRefused(f"it is XML, but no DMARC report: its outermost element is {line(name, 40)!a}")
        elif len(path) > DEPTH_MAX:
            raise ReportRefused(f"its XML is nested more than {DEPTH_MAX} deep")

    def _said(self, text: str) -> None:
        if self._length < TEXT_CHARACTERS_MAX:
            self._text.append(text)
            self._length += len(text)

    def _end(self, _: str) -> None:
        path = self._path
        name = path.pop()
        if self._text:
            said = "".join(self._text).strip()
            self._text.clear()
            if said and path:
                self._keep(name, path[-1], said[:TEXT_CHARACTERS_MAX])
        if name == "record":
            self._close()

    def _keep(self, name: str, above: str, said: str) -> None:
        if above == "dkim" and self._signatures:
            self._signatures[-1].setdefault(name, said)
        elif above == "spf" and self._spf:
            self._spf[-1].setdefault(name, said)
        elif above == "reason":
            if name == "type" and len(self._reasons) < RESULTS_MAX:
                self._reasons.append(line(said, 40).lower())
        elif above == _EVALUATED:
            self._row.setdefault(f"evaluated {name}", said)
        elif above == _POLICY:
            self._policy.setdefault(name, said)
        elif above not in (_META, "date_range"):
            self._row.setdefault(name, said)
        elif name != "error":
            self._meta.setdefault(name, said)
        elif len(self._errors) < RESULTS_MAX:
            self._errors.append(line(said))

    def _close(self) -> None:
        get, number = self._row.get, count(self._row.get("count", ""))
        author = _domain(get("header_from", "")) or _domain(self._policy.get("domain", ""))
        signed = [_domain(one.get("domain", "")) for one in self._signatures if _result(one.get("result")) == "pass"]
        spf = self._spf[0] if self._spf else {}
        spf_result, envelope = _result(spf.get("result")), _domain(spf.get("domain") or get("envelope_from", ""))
        source = Source(
            _address(get("source_ip", "")), author, _result(get("evaluated disposition")),
            _result(get("evaluated dkim")) or _judged(any(_aligned(one, author) for one in signed)),
            _result(get("evaluated spf")) or _judged(spf_result == "pass" and _aligned(envelope, author)),
            tuple(sorted(set(filter(None, signed))))[:3], envelope, spf_result, tuple(self._reasons[:3]),
        )  # fmt: skip
        if number:
            self._sources[source] = self._sources.get(source, 0) + number

    def _report(self) -> DmarcReport:
        meta, policy = self._meta, self._policy
        if not meta and not policy and not self._rows:
            raise ReportRefused("it is a DMARC report without any content")
        about = domain(policy.get("domain", "")) or next((one.domain for one in self._sources), "")
        begin_s = time_s(meta.get("begin", ""))
        if not about or not begin_s:
            raise ReportRefused("it is a DMARC report that does not say which domain, or which day, it is about")
        if sum(self._sources.values()) > COUNT_MAX:
            raise ReportRefused(f"it has a count above {COUNT_MAX:,}")
        contact = line(meta.get("email", ""))
        return DmarcReport(
            line(meta.get("org_name", "")) or contact.rpartition("@")[2].lower(), line(meta.get("report_id", "")),
            contact, begin_s, max(begin_s, time_s(meta.get("end", "")) or begin_s + DAY_S - 1), about,
            {name: line(policy[name], 20).lower() for name in _PUBLISHED if name in policy},
            tuple(self._errors), self._sources,
        )  # fmt: skip


def _no_entities(*_: Any) -> None:
    raise ReportRefused("its XML declares a document type; no report needs one, and entities are not expanded")


def _with_references(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """An "&" that begins none stands for itself, as in "AT&T"."""
    held = b""
    for piece in pieces:
        piece = held + piece
        at = piece.rfind(b"&", -_HELD)
        held = piece[at:] if at >= 0 else b""
        piece = piece[: len(piece) - len(held)]
        yield _BARE.sub(b"&amp;", piece) if b"&" in piece else piece
    if held:
        yield _BARE.sub(b"&amp;", held)


def _honest(piece: bytes) -> bytes:
    """Without the encoding of a declaration that cannot be true: what is read here has no zeros."""
    head, mark, rest = piece.partition(b"?>")
    return re.sub(rb"""encoding\s*=\s*["']utf-?16[^"']*["']""", b"", head, flags=re.IGNORECASE) + mark + rest


@lru_cache(maxsize=1_000)
def _bare_name(name: str) -> str:
    """Without its namespace's prefix."""
    return name[:200].rpartition(":")[2].lower()


@lru_cache(maxsize=1_000)
def _domain(said: str) -> str:
    return domain(said)


@lru_cache(maxsize=1_000)
def _address(said: str) -> str:
    return address(said)


@lru_cache(maxsize=1_000)
def _result(said: str | None) -> str:
    return line(said or "", 20).lower()


def _judged(aligned: bool) -> str:
    return "pass" if aligned else "fail"


def _aligned(one: str, author: str) -> bool:
    return bool(one) and (one == author or one.endswith(f".{author}") or author.endswith(f".{one}"))
