"""Arguments of hooks for tests, of which a test says only what it is about."""

from __future__ import annotations

from typing import Any

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.plugin.arguments import Session
from zonemta_py.queue.api import Delivery

ANNA, SHOP = "anna@example.com", "shop@example.com"


def envelope(*recipients: str | Recipient, sender: str = SHOP, **fields: Any) -> Envelope:
    """Of a message to these recipients, or to anna@example.com. fields: any of an Envelope."""
    return Envelope(sender, _people(recipients), **fields)


def delivery(*recipients: str | Recipient, sender: str = SHOP, **fields: Any) -> Delivery:
    """Of a short message to these recipients, or to anna@example.com, at the first attempt. fields: any of a Delivery,
    and `notes`, `meta`, `user`, `origin`, `account` and `headers`."""
    people = _people(recipients)
    about = {
        name: fields.pop(name) for name in ("notes", "meta", "user", "origin", "account", "headers") if name in fields
    }
    body = fields.get("body") or b"Subject: hello\r\n\r\nHello!\r\n"
    given: dict[str, Any] = {
        "lease": 1, "id": "1", "zone": "default", "destination": people[0].domain, "size": len(body), "chunks": 1,
        "body": body, "attempts": [0] * len(people),
    }  # fmt: skip
    given["about"] = about | fields.pop("about", {})
    return Delivery(sender=sender, recipients=people, **given | fields)


def session(client: str = "192.0.2.1", **fields: Any) -> Session:
    """Of a client at that address (RFC 5737's, which is nobody's). fields: any of a Session."""
    given: dict[str, Any] = {"id": "1", "listener": "smtp", "helo": "client.example.com", "protocol": "ESMTP"}
    return Session(client=client, **given | fields)


def _people(recipients: tuple[str | Recipient, ...]) -> list[Recipient]:
    return [Recipient(one) if isinstance(one, str) else one for one in recipients or (ANNA,)]
