"""Kinds of values: a domain, a host, an address of this machine, a tenant, a path, the name of another table. Whatever
key has one of these types is checked as all others of it; no key has a check of its own for them.

A type raises ValueError with the value and the remedy. What needs the whole file, or this machine, is a mark on the
type (`Refers`, `Local`, `OnDisk`), which `marked` finds with its place.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationInfo

from zonemta_py.config.section import Place
from zonemta_py.mail.addresses.domain import canonical

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LDH = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"{_LDH}(\.{_LDH})*")
_LITERAL = re.compile(r"\[[0-9A-Za-z:.]+\]")
_NUMBERS = re.compile(r"[0-9.]+")
_FIELD_NAME = re.compile(r"[!-9;-~]+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PORT = re.compile(r"(.*):(\d{1,5})")


class Refers(NamedTuple):
    """The value is the name of a table in `kind`, [[pools]] or [users]. sends: a zone that sends, not a pull zone."""

    kind: str
    sends: bool = False


class Local(NamedTuple):
    """The value is an IP address that this machine should have."""


class OnDisk(NamedTuple):
    """The value is the path of a file or folder that must be there."""

    folder: bool = False


_Mark = TypeVar("_Mark", Refers, Local, OnDisk)


class Found(NamedTuple, Generic[_Mark]):
    """A value with a mark, and where it stands."""

    place: Place
    value: Any
    mark: _Mark


def domain(value: str) -> str:
    """In lower case and A-labels. Raises ValueError for what is not a domain."""
    name = canonical(value)
    if not _DNS_NAME.fullmatch(name) or _NUMBERS.fullmatch(name):
        raise ValueError(f"{value!r} is not a domain such as example.com")
    return name


def domain_rule(value: str) -> str:
    """As it is written. Raises ValueError for what is neither a domain nor *.domain nor *."""
    name = canonical(value.removeprefix("*."))
    if value != "*" and not _LITERAL.fullmatch(name) and (not _DNS_NAME.fullmatch(name) or _NUMBERS.fullmatch(name)):
        raise ValueError(f"{value!r} is not a domain such as example.com or *.example.com")
    return value


def sender_rule(value: str) -> str:
    """Raises ValueError for what is neither an address nor a domain rule."""
    local, at, rule = value.rpartition("@")
    try:
        domain_rule(rule)
    except ValueError:
        at = "@"
        local = ""
    if at and (not local or "*" in value or "@" in local.strip('"') or any(map(str.isspace, value))):
        raise ValueError(f"{value!r} is not a sender such as ann@example.com, example.com, *.example.com or *")
    return value


def ehlo_name(value: str) -> str:
    """Raises ValueError for what must not stand in EHLO (RFC 5321 4.1.1.1): a host name or an address literal."""
    name = canonical(value)
    if value and not _LITERAL.fullmatch(value) and (not _HOST_NAME.fullmatch(name) or _NUMBERS.fullmatch(name)):
        remedy = "write a host name such as mail.example.com"
        if _NUMBERS.fullmatch(name):
            remedy += f", or [{value}]"
        elif re.fullmatch(r"[\w.-]+", name):
            remedy = "letters, digits, hyphens and dots are allowed in it, no hyphen at an end; " + remedy
        raise ValueError(f"{value!r} is no name for EHLO; {remedy}")
    return value


def host(value: str) -> str:
    """A name, an IP address without brackets, or the path of a unix socket. Raises ValueError."""
    if value.startswith("/"):
        return value
    if is_ip(inner := unbracketed(value)):
        return inner
    if (found := _PORT.fullmatch(value)) and _is_host(found[1]):
        raise ValueError(f"{value!r} has a port in it; write host = {found[1].strip('[]')!r} and port = {found[2]}")
    if not _is_host(value):
        raise ValueError(f"{value!r} is not a host such as mail.example.com, 192.0.2.1 or 2001:db8::1")
    return value


def is_ip(value: str) -> bool:
    """Whether it is an IP address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def unbracketed(value: str) -> str:
    """An IP address without the brackets around it; anything else as it is."""
    return value[1:-1] if value[:1] == "[" and value[-1:] == "]" and is_ip(value[1:-1]) else value


def _is_host(value: str) -> bool:
    name = canonical(value)
    return is_ip(unbracketed(value)) or (bool(_DNS_NAME.fullmatch(name)) and not _NUMBERS.fullmatch(name))


def site(value: str) -> str:
    """The name of an MX host, a rule for such names, or a smart host with its port. Raises ValueError."""
    found = _PORT.fullmatch(value)
    name = found[1] if found and not value.startswith("*") else value
    if value.startswith("/") or value == "*" or (found and _is_host(name)) or _is_host(name.removeprefix("*.")):
        return value
    raise ValueError(f"{value!r} is not a site such as mx.example.net, *.example.net or relay.example:587")


def name(value: str) -> str:
    """Of a tenant or campaign, as mail can have it. Raises ValueError."""
    if value and not _NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} is no name that mail can have; use up to 63 letters, digits, dots, underscores and hyphens"
        )
    return value


def name_start(value: str) -> str:
    """A name, or its beginning with * at the end. Raises ValueError."""
    if value != "*":
        try:
            name(value.removesuffix("*"))
        except ValueError as error:
            more = ", and * only at the end" if "*" in value else ""
            raise ValueError(f"{error}{more}") from None
    return value


def address(value: str) -> str:
    """Raises ValueError for what is not an address that a field such as From can have."""
    local, _, at = value.rpartition("@")
    wrong = not value.isascii() or not value.isprintable() or set(' <>,;:"()[]\\') & set(value)
    if value and (not local or wrong or not _DNS_NAME.fullmatch(at.rstrip("."))):
        raise ValueError(f"{value!r} is not an address such as postmaster@example.com")
    return value


def ip_address(value: str) -> str:
    """In one spelling. Raises ValueError for what is not an IP address."""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address such as 127.0.0.1 or ::1") from None


def network(value: str) -> str:
    """In one spelling. Raises ValueError for what is not a network, and for IPv4 that is written as IPv6: clients have
    their IPv4 address here, however they came."""
    try:
        found = ipaddress.ip_network(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is not a network such as 192.0.2.0/24 ({error})") from None
    inner = found.network_address.ipv4_mapped if isinstance(found, ipaddress.IPv6Network) else None
    if inner is not None and found.prefixlen >= 96:
        raise ValueError(f"{value!r} is IPv4, mapped into IPv6; write {inner}/{found.prefixlen - 96}")
    return str(found)


def field_name(value: str) -> str:
    """Raises ValueError for what is not the name of a header field."""
    if not _FIELD_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not the name of a header field such as List-Id")
    return value


def not_empty(value: object) -> object:
    """Raises ValueError for an empty path, which would be the folder of the file."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("is empty; give it a path, or leave it out")
    return value


def from_here(value: Path, info: ValidationInfo) -> Path:
    """A path that does not begin with / or ~ goes from the folder of the file in which it stands, whatever folder a
    command was started in. What came from no file stays as it is."""
    if info.context is None or value.is_absolute() or str(value).startswith("~"):
        return value
    return Path(info.context.folder / value)


def at_home(value: Path, info: ValidationInfo) -> Path:
    """The same, and ~ is the home folder of who reads the file."""
    try:
        return from_here(value, info).expanduser()
    except RuntimeError:  # there is none: whoever opens the file will say so
        return value


def _unless_empty(check: Callable[[str], str]) -> Callable[[str], str]:
    return lambda value: check(value) if value else value


Domain = Annotated[str, AfterValidator(domain)]
DomainOrNone = Annotated[str, AfterValidator(_unless_empty(domain))]
DomainRule = Annotated[str, AfterValidator(domain_rule)]
SenderRule = Annotated[str, AfterValidator(sender_rule)]
EhloName = Annotated[str, AfterValidator(ehlo_name)]
Host = Annotated[str, AfterValidator(host)]
HostOrNone = Annotated[str, AfterValidator(_unless_empty(host))]
Site = Annotated[str, AfterValidator(site)]
Tenant = Annotated[str, AfterValidator(name)]
Campaign = Annotated[str, AfterValidator(name)]
NameStart = Annotated[str, AfterValidator(name_start)]
AddressOrNone = Annotated[str, AfterValidator(address)]
IpAddress = Annotated[str, AfterValidator(ip_address)]
LocalAddress = Annotated[str, AfterValidator(ip_address), Local()]
Network = Annotated[str, AfterValidator(network)]
FieldName = Annotated[str, AfterValidator(field_name)]
AnyPath = Annotated[Path, BeforeValidator(not_empty), AfterValidator(from_here)]
PathBelow = Annotated[Path, BeforeValidator(not_empty)]
FilePath = Annotated[Path, BeforeValidator(not_empty), AfterValidator(at_home), OnDisk()]
FolderPath = Annotated[Path, BeforeValidator(not_empty), AfterValidator(at_home), OnDisk(folder=True)]
ZoneName = Annotated[str, Refers("zones")]
ListenerName = Annotated[str, Refers("listeners")]
SendingZoneName = Annotated[str, Refers("zones", sends=True)]
PoolName = Annotated[str, Refers("pools")]
WarmupName = Annotated[str, Refers("warmups")]
WindowName = Annotated[str, Refers("windows")]
UserName = Annotated[str, Refers("users")]
KeyName = Annotated[str, Refers("http.keys")]


def marked(section: BaseModel, mark: type[_Mark], place: Place = ()) -> Iterator[Found[_Mark]]:
    """All values in it, and in the tables in it, whose type has a mark of that kind; not those that are empty."""
    for key in _holding(type(section), cast(Any, mark)):
        field, value, here = type(section).model_fields[key], getattr(section, key), (*place, key)
        yield from (Found(here, value, one) for one in field.metadata if isinstance(one, mark) and value)
        yield from _inside(value, field.annotation, mark, here)


@lru_cache
def _holding(section: type[BaseModel], mark: type[_Mark]) -> list[str]:
    """Its keys whose values, or what is in them, may have such a mark."""
    return [
        key
        for key, field in section.model_fields.items()
        if any(isinstance(one, mark) for one in field.metadata) or _may_hold(field.annotation, mark)
    ]


def _may_hold(kind: Any, mark: type[_Mark]) -> bool:
    """kind: an annotation."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return bool(_holding(kind, cast(Any, mark)))
    return isinstance(kind, mark) or any(_may_hold(one, mark) for one in get_args(kind))


def _inside(value: Any, kind: Any, mark: type[_Mark], place: Place) -> Iterator[Found[_Mark]]:
    """kind: the annotation of the value."""
    if not value:
        return
    if marks := getattr(kind, "__metadata__", ()):
        yield from (Found(place, value, one) for one in marks if isinstance(one, mark))
        kind = get_args(kind)[0]
    inner = get_args(kind)
    if type(None) in inner:
        yield from _inside(value, next(one for one in inner if one is not type(None)), mark, place)
    elif isinstance(value, BaseModel):
        yield from marked(value, mark, place)
    elif isinstance(value, list) and inner:
        for number, one in enumerate(value):
            yield from _inside(one, inner[0], mark, (*place, number))
    elif isinstance(value, dict) and inner:
        for key, one in value.items():
            yield from _inside(key, inner[0], mark, (*place, key))
            yield from _inside(one, inner[1], mark, (*place, key))


def written(section: BaseModel, place: Place) -> str:
    """A place as errors name it: zones[bulk].port."""
    text, here = "", cast(Any, section)
    for part in place:
        if isinstance(part, int):
            here = here[part]
            if isinstance(here, BaseModel):
                names = (getattr(here, key, None) for key in ("name", "address", "domain"))
                text += f"[{next(filter(None, names), part)}]"
        else:
            here = getattr(here, part) if isinstance(here, BaseModel) else here.get(part)
            text += f".{part}"
    return text.removeprefix(".")
