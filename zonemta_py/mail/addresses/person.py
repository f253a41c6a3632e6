"""One spelling for each person's address: what suppression, consent and erasure go by."""

from __future__ import annotations

import unicodedata

from zonemta_py.mail.addresses.domain import canonical


def person(address: str) -> str:
    """The whole address in lower case (NFC), its domain in A-labels: two spellings of one mailbox are equal.

    RFC 5321 2.4 leaves the case of a local part to its own server, so mail is always sent to the address as it was
    given. But servers that tell Ann@ from ann@ are not met in practice, while people unsubscribe in another spelling
    than they subscribed in; and mail to somebody who has refused it is worse than mail withheld from a stranger.
    Nothing else is folded: dots and +tags mean something at some providers.
    """
    local, at, domain = address.rpartition("@")
    if not address.isascii():
        local = unicodedata.normalize("NFC", local)
    return f"{local.lower()}{at}{canonical(domain)}"
