"""Addresses that are not ordinary, judged in Python by the receivers' own parser (mail/address.py). Runs in workers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from zonemta_py.mail.address import AddressRefused, parse_rcpt
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.written import bare


def judged(addresses: pa.Array) -> pa.Array:
    """Array of addresses, or null → array of them normalised, null where they are wrong."""
    if addresses.null_count == len(addresses):
        return pa.nulls(len(addresses), pa.string())
    found = pa.array([spelled(text) for text in addresses.drop_null().to_pylist()], pa.string())
    return pc.replace_with_mask(pa.nulls(len(addresses), pa.string()), addresses.is_valid(), found)


def spelled(text: str) -> str | None:
    """The address as the parser gives it back, its domain in A-labels; None if it is none, or names no domain.

    A name beside it, brackets and `mailto:` are left out.
    """
    text = bare(text)
    try:
        found = parse_rcpt(f"<{text}>", smtputf8=True)[0].address
    except AddressRefused:
        return None
    local, at, domain = found.rpartition("@")
    if not at or f"{local}@{domain}".lower() != text.lower():  # a source route, or parameters behind a >
        return None
    domain = canonical(domain)
    return f"{local}@{domain}" if domain.isascii() else None
