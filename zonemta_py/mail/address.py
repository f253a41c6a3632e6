"""Paths and parameters of MAIL and RCPT (RFC 5321 4.1.2, 6531 3.3, 3461 4, 1870, 6152, 4954; and `schedule_fields`).

Ordinary addresses are matched by one regular expression; quoted local parts, source routes (dropped, RFC 5321 4.1.1.3),
address literals and international addresses take a slower one. An address is given back as it came, but for its domain,
which is lower-cased. Every fault is an `AddressRefused` that carries the reply.

Kept lenient on purpose, because real mail needs it: spaces after the colon, underscores in domains, dots anywhere in a
local part (mailboxes like user..name.@ exist at Japanese mobile providers), and local parts longer than 64 octets
(variable return paths are) as long as the whole address stays within ADDRESS_BYTES_MAX.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from zonemta_py.mail.envelope import Notify, Recipient
from zonemta_py.mail.limits import ADDRESS_BYTES_MAX, COMMAND_BYTES_MAX
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.schedule_fields import PARAMETERS, InvalidValue, ScheduleParameters

_DOMAIN_BYTES_MAX = 255
_ENVID_MAX = 100
_ORCPT_MAX = 500

_LDH = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_LOCAL = rf"\.*[{_ATEXT}][.{_ATEXT}]*"
_ORDINARY = re.compile(rf" *<({_LOCAL})@({_LDH}(?:\.{_LDH})*)>(?: +(.*))?", re.DOTALL)
_BARE = re.compile(rf"{_LOCAL}@{_LDH}(?:\.{_LDH})*")

_U = r"[^\x00-\x7f]"
_ULOCAL = rf"\.*(?:[{_ATEXT}]|{_U})(?:[.{_ATEXT}]|{_U})*"
_ULABEL = rf"(?:[A-Za-z0-9_]|{_U})(?:(?:[A-Za-z0-9_-]|{_U})*(?:[A-Za-z0-9_]|{_U}))?"
_UDOMAIN = rf"{_ULABEL}(?:\.{_ULABEL})*"
_QUOTED = rf'"(?:[ !#-\[\]-~]|{_U}|\\[ -~])*"'
_LITERAL = r"\[[!-Z^-~]+\]"
_PATH = re.compile(
    rf"\s*<(?:@{_UDOMAIN}(?:,@{_UDOMAIN})*:)?"
    rf"(?P<local>{_ULOCAL}|{_QUOTED})@(?P<domain>{_UDOMAIN}|{_LITERAL})>(?:\s+(?P<rest>.*))?",
    re.DOTALL,
)
_NULL = re.compile(r"\s*<>(?:\s+(?P<rest>.*))?", re.DOTALL)
_POSTMASTER = re.compile(r"\s*<(postmaster)>(?:\s+(?P<rest>.*))?", re.DOTALL | re.IGNORECASE)
_TAGGED = re.compile(r"[A-Za-z0-9-]*[A-Za-z0-9]:[!-Z^-~]+")

_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]*)(?:=([^\x00-\x20\x7f]+))?")
_SIZE = re.compile(r"\d{1,20}")
_XTEXT = re.compile(r"(?:[!-*,-<>-~]|\+[0-9A-F]{2}|[^\x00-\x7f])*")
_HEX = re.compile(rb"\+([0-9A-F]{2})")
_NOT_XCHAR = re.compile(rb"[^!-*,-<>-~]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NOTIFY = {"SUCCESS": Notify.SUCCESS, "FAILURE": Notify.FAILURE, "DELAY": Notify.DELAY}


class AddressRefused(ValueError):
    """`reply`: what the client is told."""

    def __init__(self, code: int, enhanced: str, text: str) -> None:
        self.reply = Reply(code, enhanced, text)
        super().__init__(str(self.reply))


@dataclass(slots=True)
class MailCommand:
    """What MAIL FROM said. address: "" for the null sender. size: declared bytes, 0 if none was (RFC 1870).

    schedule: what was asked of the schedule, None if nothing.
    """

    address: str
    parameters: dict[str, str] = field(default_factory=dict)
    size: int = 0
    body: str = "7BIT"
    smtputf8: bool = False
    ret: str | None = None
    envid: str | None = None
    schedule: ScheduleParameters | None = None


def parse_mail(argument: str) -> MailCommand:
    """Takes what follows "MAIL FROM:". Raises AddressRefused."""
    found = _ORDINARY.fullmatch(argument) if len(argument) < _DOMAIN_BYTES_MAX else None
    if found:
        local, domain, rest = found.groups()
        command = MailCommand(f"{local}@{domain.lower()}")
    else:
        null = _NULL.fullmatch(argument)
        address, rest = ("", null["rest"]) if null else _parse_path(argument, "1.7", "MAIL FROM:<address>")
        command = MailCommand(address)
    if rest:
        _mail_parameters(command, parse_parameters(rest))
    if not command.smtputf8 and not command.address.isascii():
        raise AddressRefused(553, "5.6.7", "The address is international: say SMTPUTF8 with MAIL (RFC 6531)")
    return command


def parse_rcpt(argument: str, smtputf8: bool = False) -> tuple[Recipient, dict[str, str]]:
    """Takes what follows "RCPT TO:"; returns the recipient and its parameters. Raises AddressRefused.

    The address is "postmaster", without a domain, for the one mailbox that may be named so (RFC 5321 4.5.1).
    """
    found = _ORDINARY.fullmatch(argument) if len(argument) < _DOMAIN_BYTES_MAX else None
    if found:
        local, domain, rest = found.groups()
        address = f"{local}@{domain.lower()}"
    else:
        postmaster = _POSTMASTER.fullmatch(argument)
        if postmaster:
            address, rest = "postmaster", postmaster["rest"]
        else:
            address, rest = _parse_path(argument, "1.3", "RCPT TO:<address>")
        if not smtputf8 and not address.isascii():
            raise AddressRefused(553, "5.6.7", "The address is international: say SMTPUTF8 with MAIL (RFC 6531)")
    if not rest:
        return Recipient(address), {}
    parameters = parse_parameters(rest)
    return _rcpt_parameters(address, parameters, smtputf8), parameters


def parse_mailbox(text: str) -> str:
    """A bare name@domain, international or not, as programs and files say it. Raises AddressRefused.

    Only the case of the domain is changed; anything that could be read as something else is refused.
    """
    if len(text) < _DOMAIN_BYTES_MAX and _BARE.fullmatch(text):
        local, _, domain = text.rpartition("@")
        return f"{local}@{domain.lower()}"
    address, rest = _parse_path(f"<{text}>", "1.3", "name@domain")
    if rest or address.lower() != text.lower():
        raise _malformed("1.3", "name@domain")
    return address


def _parse_path(argument: str, detail: str, syntax: str) -> tuple[str, str | None]:
    if len(argument) > COMMAND_BYTES_MAX:  # before the expression, which takes a hundred bytes for each of these
        raise _too_long(detail)
    found = _PATH.fullmatch(argument)
    if found is None:
        raise _malformed(detail, syntax)
    local, domain = found["local"], found["domain"].lower()
    if not (local + domain).isprintable():
        raise _malformed(detail, syntax)
    if domain.startswith("["):
        domain = _check_literal(domain, detail)
    elif any(len(label) > 63 for label in domain.split(".")):
        raise _malformed(detail, syntax)
    if len(domain.encode()) > _DOMAIN_BYTES_MAX or len(local.encode()) + len(domain.encode()) >= ADDRESS_BYTES_MAX:
        raise _too_long(detail)
    return f"{local}@{domain}", found["rest"]


def _too_long(detail: str) -> AddressRefused:
    return AddressRefused(501, "5." + detail, f"The address is longer than {ADDRESS_BYTES_MAX} octets")


def _malformed(detail: str, syntax: str) -> AddressRefused:
    return AddressRefused(501, "5." + detail, f"Malformed address, expected {syntax} (RFC 5321 4.1.2)")


def _check_literal(domain: str, detail: str) -> str:
    """[192.0.2.1], [IPv6:2001:db8::1] or [tag:content] (RFC 5321 4.1.3)."""
    inner = domain[1:-1]
    try:
        if inner.startswith("ipv6:"):
            return f"[IPv6:{ipaddress.IPv6Address(inner[5:])}]"
        if _TAGGED.fullmatch(inner):
            return domain
        return f"[{ipaddress.IPv4Address(inner)}]"
    except ValueError:
        raise AddressRefused(501, "5." + detail, "Malformed address literal (RFC 5321 4.1.3)") from None


def parse_parameters(text: str) -> dict[str, str]:
    """Splits "SIZE=1 SMTPUTF8" into {"SIZE": "1", "SMTPUTF8": ""}. Raises AddressRefused."""
    parameters: dict[str, str] = {}
    for word in text.split():
        found = _PARAMETER.fullmatch(word)
        if found is None:
            raise AddressRefused(501, "5.5.4", "Malformed parameter, expected KEYWORD=value")
        keyword = found[1].upper()
        if keyword in parameters:
            raise AddressRefused(501, "5.5.4", f"{keyword} is given twice")
        parameters[keyword] = found[2] or ""
    return parameters


def _mail_parameters(command: MailCommand, parameters: dict[str, str]) -> None:
    command.parameters = parameters
    for keyword, value in parameters.items():
        if keyword == "SIZE" and _SIZE.fullmatch(value):
            command.size = int(value)
        elif keyword == "BODY" and value.upper() in ("7BIT", "8BITMIME"):
            command.body = value.upper()
        elif keyword == "SMTPUTF8" and not value:
            command.smtputf8 = True
        elif keyword == "RET" and value.upper() in ("FULL", "HDRS"):
            command.ret = value.upper()
        elif keyword == "ENVID" and 0 < len(value) <= _ENVID_MAX:
            command.envid = xtext_decode(value)
        elif keyword == "AUTH" and (value == "<>" or (value and _XTEXT.fullmatch(value))):
            pass  # we vouch for no one: what we relay goes without AUTH= (RFC 4954 5)
        elif keyword in PARAMETERS:
            _wish(command, keyword, value)
        else:
            _refuse_parameter(keyword, value, ("SIZE", "BODY", "SMTPUTF8", "RET", "ENVID", "AUTH"))


def _wish(command: MailCommand, keyword: str, value: str) -> None:
    command.schedule = command.schedule or ScheduleParameters()
    try:
        command.schedule.say(keyword, value)
    except InvalidValue as invalid:
        raise AddressRefused(501, "5.5.4", f"{keyword}: {invalid}") from None


def _rcpt_parameters(address: str, parameters: dict[str, str], smtputf8: bool) -> Recipient:
    recipient = Recipient(address)
    for keyword, value in parameters.items():
        if keyword == "NOTIFY":
            recipient.notify = _parse_notify(value)
        elif keyword == "ORCPT" and 0 < len(value) <= _ORCPT_MAX:
            recipient.orcpt = _parse_orcpt(value, smtputf8)
        else:
            _refuse_parameter(keyword, value, ("NOTIFY", "ORCPT"))
    return recipient


def _refuse_parameter(keyword: str, value: str, known: tuple[str, ...]) -> None:
    if keyword in known:
        raise AddressRefused(501, "5.5.4", f"{keyword} has a value this server does not understand")
    raise AddressRefused(555, "5.5.4", f"{keyword} is not a parameter this server knows")


def _parse_notify(value: str) -> int:
    words = value.upper().split(",")
    if words == ["NEVER"]:
        return int(Notify.NEVER)
    if not all(word in _NOTIFY for word in words):
        raise AddressRefused(501, "5.5.4", "NOTIFY is NEVER, or a list of SUCCESS, FAILURE and DELAY")
    flags = Notify.UNSET
    for word in words:
        flags |= _NOTIFY[word]
    return int(flags)


def _parse_orcpt(value: str, smtputf8: bool) -> str:
    kind, semicolon, original = value.partition(";")
    if not semicolon or not original or not re.fullmatch(r"[A-Za-z0-9-]+", kind):
        raise AddressRefused(501, "5.5.4", "ORCPT is an address type, a semicolon and an address in xtext")
    if not smtputf8 and not original.isascii():
        raise AddressRefused(501, "5.5.4", "ORCPT has characters outside ASCII: say SMTPUTF8 with MAIL")
    return f"{kind};{xtext_decode(original)}"


def xtext_decode(text: str) -> str:
    """RFC 3461 4: "+2B" stands for the octet 2B. Raises AddressRefused; control characters are refused too."""
    if not _XTEXT.fullmatch(text):
        raise AddressRefused(501, "5.5.4", "Malformed xtext (RFC 3461 4)")
    if "+" not in text:
        return text
    octets = _HEX.sub(lambda found: bytes((int(found[1], 16),)), text.encode())
    try:
        decoded = octets.decode()
    except UnicodeDecodeError:
        raise AddressRefused(501, "5.5.4", "Malformed xtext: its octets are not UTF-8") from None
    if _CONTROL.search(decoded):  # they would end up in header fields of notifications
        raise AddressRefused(501, "5.5.4", "Malformed xtext: it contains control characters")
    return decoded


def xtext_encode(text: str) -> str:
    """The inverse of xtext_decode: printable ASCII but "+" and "=" stands for itself, every other octet is "+XX"."""
    return _NOT_XCHAR.sub(lambda found: b"+%02X" % found[0][0], text.encode()).decode()
