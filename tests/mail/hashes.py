"""The hash of a body that is there whole: what tests compare with."""

from __future__ import annotations

from zonemta_py.mail.dkim.canonical import BodyHash, Form


def body_hash(form: Form, body: bytes) -> bytes:
    hashed = BodyHash(form)
    hashed.add(body)
    return hashed.digest()
