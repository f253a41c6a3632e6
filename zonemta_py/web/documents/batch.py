"""Batches: up to a thousand recipients of a campaign with their fields, from JSON to an envelope.

Rows are first checked together, by operations in C; only if something is wrong is each row checked by itself, to say
what and where. So a valid batch of 500 rows of six fields costs less than 2 ms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgpack

from zonemta_py.mail import metadata
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.web.documents import values
from zonemta_py.web.documents.models import BatchHead
from zonemta_py.web.documents.problem import FieldError, invalid
from zonemta_py.web.documents.reading import checked

_SEEN_MAX = 1_000
"""Most faulty rows that are reported."""


def read(content: dict[str, Any], most: int) -> Envelope:
    """content: the JSON. most: recipients. Envelope without a sender: the campaign's. Raises RequestProblem."""
    rows = content.pop("recipients")
    head = checked(BatchHead, content)
    faults = list(_twice(head.columns))
    if not isinstance(rows, list) or not rows:
        faults.append(FieldError("recipients", "is not a list of rows; give [[address, value, …], …]"))
    elif len(rows) > most:
        faults.append(FieldError("recipients", f"has {len(rows):,} rows; send {most:,} at most in one request"))
    if faults:
        raise invalid(faults)
    recipients = _recipients(rows, len(head.columns) + 1)
    if any(map(metadata.is_column, head.columns)):
        _take_metadata(recipients, head.columns)
    return Envelope(
        "", recipients, columns=head.columns, campaign=head.campaign, source=head.source,
        sending_zone=head.zone or None, digest=_digest(head, rows), meta=head.metadata,
    )  # fmt: skip


def _recipients(rows: list[Any], width: int) -> list[Recipient]:
    addresses = _all_good(rows, width)
    if addresses is None:
        faults = [fault for _, fault in zip(range(_SEEN_MAX), _faults(rows, width), strict=False)]
        raise invalid(faults)
    return [Recipient(address, values=row[1:]) for address, row in zip(addresses, rows, strict=True)]


def _take_metadata(recipients: list[Recipient], columns: list[str]) -> None:
    """Raises RequestProblem."""
    faults = list[FieldError]()
    for number, one in enumerate(recipients):
        try:
            one.meta = metadata.of_columns(columns, one.values or []) or None
        except metadata.InvalidMetadata as wrong:
            faults.append(FieldError(f"recipients[{number}]", f"its metadata {wrong}"))
            if len(faults) == _SEEN_MAX:
                break
    if faults:
        raise invalid(faults)


def _all_good(rows: list[Any], width: int) -> list[str] | None:
    """The addresses in their final form; None if anything at all is wrong."""
    if any(type(row) is not list or len(row) != width for row in rows):
        return None
    cells = list(chain.from_iterable(rows))
    try:
        fits = values.fits("".join(cells))
        addresses = [values.address(row[0]) for row in rows]
    except (TypeError, ValueError):
        return None
    if not fits or max(map(len, cells)) > values.VALUE_CHARACTERS_MAX:
        return None
    return addresses if len({address.lower() for address in addresses}) == len(rows) else None


def _faults(rows: list[Any], width: int) -> Iterator[FieldError]:
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        where = f"recipients[{number}]"
        if not isinstance(row, list) or not row:
            yield FieldError(where, "is not a row; give [address, value, …]")
            continue
        if len(row) != width:
            yield FieldError(where, f"has {len(row) - 1} values for {width - 1} columns; give one for each")
            continue
        for column, cell in enumerate(row):
            yield from _cell_faults(f"{where}[{column}]", cell, column == 0)
        if isinstance(row[0], str) and (first := seen.setdefault(row[0].lower(), number)) != number:
            yield FieldError(f"{where}[0]", f"is the same address as recipients[{first}]; remove one of them")


def _cell_faults(where: str, cell: Any, address: bool) -> Iterator[FieldError]:
    if not isinstance(cell, str):
        yield FieldError(where, "is not a string; put it in quotes")
        return
    try:
        values.field(cell)
        if address:
            values.address(cell)
    except ValueError as error:
        yield FieldError(where, str(error))


def _twice(columns: list[str]) -> Iterator[FieldError]:
    for number, name in enumerate(columns):
        if name in columns[:number]:
            yield FieldError(f"columns[{number}]", f"{name!r} appears twice; give each column its own name")


def _digest(head: BatchHead, rows: list[Any]) -> bytes:
    """Equal for equal content, however the JSON is formatted."""
    more = (head.metadata,) if head.metadata else ()
    whole = msgpack.packb((head.campaign, head.zone, head.source, head.columns, rows, *more))
    return hashlib.sha256(whole).digest()
