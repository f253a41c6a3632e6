"""One spelling for each person's address: what suppression, consent and erasure go by."""

from __future__ import annotations

import re
import unicodedata

from zonemta_py.mail.addresses.domain import canonical

_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~.-"
_NEEDLESS = re.compile(rf'"((?:[^\x00-\x20\x7f"(),:;<>@\[\\\]]|\\(?=[{_ATEXT}]))+)"')


def person(address: str) -> str:
    """The whole address in lower case (NFC), its domain in A-labels: two spellings of one mailbox are equal.

    RFC 5321 2.4 leaves the case of a local part to its own server, so mail is always sent to the address as it was
    given. But servers that tell Ann@ from ann@ are not met in practice, while people unsubscribe in another spelling
    than they subscribed in; and mail to somebody who has refused it is worse than mail withheld from a stranger.
    Nothing else is folded: dots and +tags mean something at some providers. Quotes that a local part does not need are
    no part of it (RFC 5321 4.1.2).
    """
    local, at, domain = address.rpartition("@")
    if local[:1] == '"':
        local = _unquoted(local)
    if not address.isascii():
        local = unicodedata.normalize("NFC", local)
    return f"{local.lower()}{at}{canonical(domain)}"


def _unquoted(local: str) -> str:
    found = _NEEDLESS.fullmatch(local)
    return found[1].replace("\\", "") if found and found[1].strip(".") else local
