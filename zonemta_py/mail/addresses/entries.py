"""The spellings of what is on the suppression list: one address, or what stands for many.

    ann@example.com        an address, as `mail.person` spells it
    @example.com           all addresses of that domain
    @*.example.com         all addresses of the domains below it
    pattern:noreply@*      all that fit; `*` is for any characters of the local part, or of the domain
    sha256:HEX             the address whose canonical spelling has that SHA-256

No address begins like the others, so keys of the store and records of the journal need no more to tell them apart. A
`*` is allowed in a local part, and people have typed `*@example.com` into forms: so an order without `pattern:` means a
pattern, unless the local part is quoted, while what is heard of an address (a bounce, an unsubscribe) never is one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from hashlib import sha256

from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.patterns import STARS_MAX
from zonemta_py.mail.addresses.person import person
from zonemta_py.mail.addresses.written import SPACES, bare
from zonemta_py.mail.limits import ADDRESS_BYTES_MAX
from zonemta_py.mail.schedule_fields import InvalidValue

DOMAIN, HASH, PATTERN = "@", "sha256:", "pattern:"
BELOW = "@*."
GIVE = (
    "give an address, @example.com, @*.example.com, a pattern such as noreply@*, or sha256: and 64 hexadecimal digits"
)
_HEX = re.compile("[0-9a-f]{64}")
_OTHER_HASH = re.compile("(md5:|sha1:|sha-1:)?(?P<hex>[0-9a-f]{32}|[0-9a-f]{40})")
_HOST = re.compile(r"[^\s@,;:<>\"]+\.[^\s@,;:<>\"]*[^\s@,;:<>\".]\.?")
_LOCAL_GLOB = re.compile(r"(?:[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]|[^\x00-\x7f])+")
_DOMAIN_GLOB = re.compile(r"(?!\.)[a-z0-9_*.-]+(?<!\.)")


def is_covering(text: str) -> bool:
    """Whether it stands for many addresses, or for one that is not known. text: as stored."""
    return text.startswith((DOMAIN, HASH, PATTERN))


def hash_of(who: str) -> str:
    """who: the canonical address."""
    return f"{HASH}{sha256(who.encode()).hexdigest()}"


def domain_entries(domain: str) -> Iterator[str]:
    """Every entry that covers the addresses of a domain."""
    yield DOMAIN + domain
    while domain := domain.partition(".")[2]:
        yield BELOW + domain


def literal(address: str) -> str:
    """An address as an order has it, so that it is never read as a pattern."""
    if "*" not in address or address[:1] == '"' or is_covering(address):
        return address
    local, _, domain = address.rpartition("@")
    return f'"{local}"@{domain}'


def checked(text: object) -> str:
    """As stored. Raises InvalidValue, with what to write instead."""
    if not isinstance(text, str) or not text.isprintable():
        raise InvalidValue(f"{text!r} is not an address; {GIVE}")
    plain = text.strip(SPACES)
    lower = plain.lower()
    if lower.startswith(HASH) or _HEX.fullmatch(lower):
        return _hash(lower)
    if _OTHER_HASH.fullmatch(lower):
        raise InvalidValue(
            f"{text!r} is a hash of another kind; the list takes SHA-256 only, of the address in lower case"
        )
    if plain[:1] == DOMAIN:
        return _domain(plain[1:])
    if lower.startswith(PATTERN):
        return _pattern(plain[len(PATTERN) :])
    address = bare(plain)
    if "*" in address and '"' not in address:
        return _pattern(address)
    return checked_person(text)


def checked_person(address: object) -> str:
    """The canonical form of an address, which may come with a display name. Raises InvalidValue if it is invalid."""
    if not isinstance(address, str) or not address.isprintable():
        raise InvalidValue(f"{address!r} is not an address; give one such as ann@example.com")
    from zonemta_py.mail.address import AddressRefused, parse_mailbox  # a start accepts mail before it needs a parser

    try:
        spelling = person(parse_mailbox(bare(address)))
    except AddressRefused:
        spelling = ""
    if not spelling or len(spelling.encode()) > ADDRESS_BYTES_MAX:
        name = address.strip(SPACES)
        if _HOST.fullmatch(name) and "*" not in name:
            raise InvalidValue(
                f"{address!r} is not an address; write @{name} for all of a domain, @*.{name} for all below it"
            )
        raise InvalidValue(f"{address!r} is not an address; give one such as ann@example.com")
    return spelling


def _hash(text: str) -> str:
    digits = text.removeprefix(HASH)
    if not _HEX.fullmatch(digits):
        raise InvalidValue(f"{text[:100]!r} is not a hash; give sha256: and 64 hexadecimal digits")
    return HASH + digits


def _domain(name: str) -> str:
    from zonemta_py.mail.address import AddressRefused, parse_mailbox

    below = name[:2] == "*."
    base = name[2:] if below else name
    if "*" in base:
        return _pattern(f"*@{name}")
    try:
        found = canonical(parse_mailbox(f"a@{base.rstrip('.')}").removeprefix("a@"))
    except AddressRefused:
        found = ""
    if not found or (below and found[0] == "["):
        raise InvalidValue(
            f"{f'@{name}'!r} is not a domain; give one such as @example.com, or @*.example.com for all below it"
        )
    return f"{BELOW if below else DOMAIN}{found}"


def _pattern(text: str) -> str:
    local, at, domain = text.rpartition("@")
    local = re.sub(r"\*+", "*", unicodedata.normalize("NFC", local)).lower()
    domain = re.sub(r"\*+", "*", domain.lower() if domain.isascii() else canonical(domain)).rstrip(".")
    if not at or not local or not domain or not _LOCAL_GLOB.fullmatch(local) or not _DOMAIN_GLOB.fullmatch(domain):
        raise InvalidValue(
            f"{text!r} is not a pattern; write local part, @ and domain with * in them, such as noreply@*"
        )
    stars = local.count("*") + domain.count("*")
    if not stars:
        raise InvalidValue(f"{text!r} has no *, so it is no pattern; leave {PATTERN!r} out")
    if stars > STARS_MAX or len(text.encode()) > ADDRESS_BYTES_MAX:
        raise InvalidValue(f"{text[:300]!r} is too long or has more than {STARS_MAX} *; write a simpler pattern")
    if not re.search("[^*.]", f"{local}{domain}"):
        raise InvalidValue(f"{text!r} stops everybody; `zonemta suspend zone NAME` stops all mail of a zone")
    if local == "*" and "*" not in domain.removeprefix("*."):
        return _domain(domain)
    return f"{PATTERN}{local}@{domain}"
