"""What a plugin has left in the arguments of a hook, checked right after its call: so that its failure is named with
field and value, and what comes after it never meets a value that nobody can use.

A check costs little where nothing was changed, and what the fields cost where something was. Failures: none;
`KnownFields.wrong` returns a sentence.
"""

from __future__ import annotations

import dataclasses
import re
import socket as sockets
import ssl
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from ipaddress import ip_address
from itertools import compress
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Any, NamedTuple

from zonemta_py.mail import metadata, notes
from zonemta_py.mail.envelope import Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin.verdicts import SECONDS_MAX, UNIX_S_END
from zonemta_py.queue.api import Delivery

if TYPE_CHECKING:
    from zonemta_py.plugin.arguments import Routing
    from zonemta_py.plugin.configured import Configured

SHOWN_MAX = 80
WHOLE_END = 1 << 63
"""No journal has larger numbers."""
PORT_MAX, PRIORITY_MAX, NAME_MAX, ADDRESS_MAX = 65_535, 9, 255, 1_000
TEXT_MAX = 2_000
"""Characters that a plugin may put before a notice's own."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"[^\s\x00-\x1f\x7f<>@,;\"\\/]+")
_ADDRESS = re.compile(r'(?:"[^\x00-\x1f\x7f]*"|[^\x00-\x20\x7f"<>]+)@[^\x00-\x20\x7f"<>@]+')
_KEY = re.compile(r"[\w.-]{1,250}\._domainkey\.[\w.-]{1,250}")
_TLS_MODES = ("none", "opportunistic", "required", "implicit")
_IN_WORDS = '"none", "opportunistic", "required" or "implicit"'
_NESTED = (dict, list, tuple)
_SECRET = frozenset(("auth", "password"))
"""Fields whose value is not shown."""
Test = Callable[[Any], bool]


class Rule(NamedTuple):
    """A field that a plugin may set. must: how its sentence goes on."""

    field: str
    test: Test
    must: str


def _text(value: Any) -> bool:
    return isinstance(value, str) and _CONTROL.search(value) is None


def _text_or_none(value: Any) -> bool:
    return value is None or _text(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < WHOLE_END


def _moment(value: Any) -> bool:
    return _whole(value) and bool(value < UNIX_S_END * 1000)


def _seconds(value: Any) -> bool:
    return _number_to(value, SECONDS_MAX)


def _hours(value: Any) -> bool:
    return _number_to(value, SECONDS_MAX / 3600)


def _number_to(value: Any, most: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _truth_or_none(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _key(value: Any) -> bool:
    return isinstance(value, str) and (value in ("", "none") or _KEY.fullmatch(value) is not None)


def _ascii_address(value: Any) -> bool:
    return _address(value) and bool(value.isascii())


def _return_path(value: Any) -> bool:
    return _ascii_address(value) or (isinstance(value, str) and value in ("", "<>"))


def _paragraphs(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_MAX and _text(value.replace("\n", ""))


def _port(value: Any) -> bool:
    return _whole(value) and 0 < value <= PORT_MAX


def _priority(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= PRIORITY_MAX


def _host(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= NAME_MAX and _HOST.fullmatch(value) is not None


def _address(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= ADDRESS_MAX and _ADDRESS.fullmatch(value) is not None


def _ip(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(ip_address(value))
    except ValueError:
        return False


def _or_empty(test: Test) -> Test:
    return lambda value: value == "" or test(value)


def _one_of(*words: str) -> Test:
    return lambda value: isinstance(value, str) and value in words


def _recipients(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, Recipient) and _address(one.address) and _of_one(one) for one in value
    )


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(_text(name) and isinstance(one, str) for name, one in value.items())


def _credentials(value: Any) -> bool:
    return value is None or (isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_text, value)))


def _message_notes(value: Any) -> bool:
    return notes.fit(value, notes.MESSAGE_BYTES_MAX)


def _recipient_notes(value: Any) -> bool:
    return notes.fit(value, notes.RECIPIENT_BYTES_MAX)


def _message_meta(value: Any) -> bool:
    return value is None or metadata.fits(value, metadata.MESSAGE_BYTES_MAX)


def _texts_or_none(value: Any) -> bool:
    return value is None or _texts(value)


def _of_one(one: Recipient) -> bool:
    """Whether notes and metadata of a recipient can be kept."""
    return (not one.noted or _recipient_notes(one.noted)) and (
        not one.meta or metadata.fits(one.meta, metadata.RECIPIENT_BYTES_MAX)
    )


def kept(_: Any) -> bool:
    """Of what is nobody's to change."""
    return False


def _reply(value: Any) -> bool:
    if not isinstance(value, Reply) or not _whole(value.code):
        return False
    return 200 <= value.code <= 599 and _text(value.enhanced) and _text(value.text)


_TEXT, _ANY_HOST, _ANY_ADDRESS = "be a text without control characters", "be a host's name or IP address", "an address"
_SECONDS, _NUMBER = f"be a number of seconds from 0 to {SECONDS_MAX}", "be a whole number from 0 up, of 63 bits"
_MOMENT = "be UNIX time in ms, before the year 3000"
_PRIORITY = f"be a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}"
_RECIPIENTS = (
    f"be a list of Recipient, each with an address, notes of at most {notes.RECIPIENT_BYTES_MAX:,} bytes as JSON, and"
    f" metadata of at most {metadata.RECIPIENT_BYTES_MAX:,}"
)
_NOTES = "be a dict of what JSON knows, of at most {0:,} bytes: it is kept with the {1}"
_OF_MESSAGE = Rule("notes", _message_notes, _NOTES.format(notes.MESSAGE_BYTES_MAX, "message"))
_OF_RECIPIENT = Rule("notes", _recipient_notes, _NOTES.format(notes.RECIPIENT_BYTES_MAX, "recipient"))
_METADATA = (
    "be None, or a dict of up to 32 names and what JSON knows, of at most {0:,} bytes: it comes back with what is told"
)
_META = Rule("meta", _message_meta, _METADATA.format(metadata.MESSAGE_BYTES_MAX))
_IP = "be an IP address, or empty"

RULES: dict[str, tuple[Rule, ...]] = {
    "routing": (
        Rule("zone", _text, _TEXT),
        Rule("host", _or_empty(_host), f"{_ANY_HOST}, or empty"),
        Rule("port", _port, f"be a whole number from 1 to {PORT_MAX}"),
        Rule("auth", _credentials, "be None, or a user's name and password, two texts without control characters"),
        Rule("tls", _one_of("", *_TLS_MODES), f'be "", {_IN_WORDS}'),
        Rule("source", _or_empty(_ip), _IP),
        Rule("priority", _priority, _PRIORITY),
        Rule("delay_s", _seconds, _SECONDS),
        Rule("protocol", _one_of("", "smtp", "lmtp"), 'be "", "smtp" or "lmtp"'),
        Rule("pool", _text, _TEXT),
        Rule("dkim", _key, 'be "", "none", or a key\'s name in DNS, as 2026a._domainkey.example.com'),
        Rule("sender", _return_path, f"be {_ANY_ADDRESS} in ASCII, empty, or <>"),
        *(Rule(name, _truth_or_none, "be None, True or False") for name in ("srs", "verp", "sts")),
        _OF_RECIPIENT,
    ),
    "options": (
        Rule("host", _host, _ANY_HOST),
        Rule("port", _port, f"be a whole number from 1 to {PORT_MAX}"),
        Rule(
            "addresses", lambda value: isinstance(value, list) and all(map(_ip, value)), "be a list of IP addresses"
        ),
        Rule("source", _or_empty(_ip), _IP),
        Rule("tls", _one_of(*_TLS_MODES), f"be {_IN_WORDS}"),
        Rule("hostname", _or_empty(_host), f"{_ANY_HOST}, or empty"),
        Rule("socket", lambda value: value is None or isinstance(value, sockets.socket), "be None, or a socket"),
    ),
    "envelope": (
        Rule("sender", _or_empty(_address), f"be {_ANY_ADDRESS}, or empty"),
        Rule("recipients", _recipients, _RECIPIENTS),
        *(
            Rule(name, _text, _TEXT)
            for name in (
                "body", "origin", "origin_name", "protocol", "deadline_mode", "window", "time_zone",
                "unsubscribe_scope", "track", "request", "token", "account", "durability",
            )
        ),
        *(
            Rule(name, _text_or_none, f"be None, or {_TEXT.removeprefix('be ')}")
            for name in ("ret", "envid", "user", "sending_zone", "campaign", "tenant")
        ),
        *(Rule(name, _whole, _NUMBER) for name in ("size", "lines")),
        *(Rule(name, _moment, _MOMENT) for name in ("received_ms", "hold_until_ms", "deadline_ms")),
        *(
            Rule(name, _truth, "be True or False")
            for name in ("smtputf8", "hold_for", "require_tls", "tls_optional", "unsubscribe", "unsigned")
        ),
        Rule("priority", lambda value: value is None or _priority(value), f"be None, or {_PRIORITY[3:]}"),
        Rule("life_h", _hours, f"be a number of hours from 0 to {SECONDS_MAX // 3600}"),
        Rule("source", _or_empty(_ip), _IP),
        Rule("headers", _texts, "be a dict of texts"),
        Rule("chosen", _texts_or_none, "be None, or a dict of texts"),
        _OF_MESSAGE,
        _META,
    ),
    "notice": (
        Rule("text", _paragraphs, f"be a text of at most {TEXT_MAX:,} characters, with no controls but line feeds"),
        Rule("sender", _or_empty(_ascii_address), f"be {_ANY_ADDRESS} in ASCII, or empty"),
        Rule("zone", _text, _TEXT),
    ),
    "retry": (Rule("wait_s", _seconds, _SECONDS),),
    "address": (
        Rule("address", _or_empty(_address), f"be {_ANY_ADDRESS}, or empty"),
        Rule("parameters", _texts, "be a dict of texts"),
        _OF_RECIPIENT,
    ),
    "session": (Rule("user", _text, _TEXT), Rule("account", _text, _TEXT)),
    "delivery": (
        Rule("sender", _or_empty(_address), f"be {_ANY_ADDRESS}, or empty"),
        Rule("recipients", _recipients, _RECIPIENTS),
        Rule("source", _or_empty(_ip), _IP),
        _OF_MESSAGE,
    ),
    "bounce": (
        Rule("sender", _or_empty(_address), f"be {_ANY_ADDRESS}, or empty"),
        Rule("recipients", _recipients, _RECIPIENTS),
        Rule("reply", _reply, "be a Reply with a code from 200 to 599 and texts without control characters"),
    ),
    "server": (
        Rule(
            "ehlo_keywords", lambda value: isinstance(value, list) and all(map(_text, value)),
            "be a list of texts without control characters",
        ),
        Rule(
            "commands",
            lambda value: isinstance(value, dict)
            and all(_text(name) and name.isupper() and callable(one) for name, one in value.items()),
            "be a dict of functions, named by command words in capitals",
        ),
    ),
    "data": (Rule("context", lambda value: value is None or isinstance(value, ssl.SSLContext), "be an SSLContext"),),
}  # fmt: skip
"""By the name of the argument."""
RULES["envelope only notes"] = (_OF_MESSAGE,)
_KEPT = {
    "delivery": tuple(
        one.name for one in dataclasses.fields(Delivery) if one.name not in {rule.field for rule in RULES["delivery"]}
    ),
    "bounce": ("id", "zone"),
    "routing": ("recipient",),
    "session": ("id", "listener", "client", "client_port", "server", "helo", "tls", "protocol", "senders"),
}  # fmt: skip
RULES |= {
    f"{name}, kept": tuple(Rule(field, kept, "stay as it is") for field in fields) for name, fields in _KEPT.items()
}
_EARLIER = "stay as it is here: set it at sender_fetch"
RULES["delivery on its way"] = (*RULES["delivery"][:2], Rule("source", kept, _EARLIER), _OF_MESSAGE)
RULES["delivery and its connection"] = (
    *(Rule(field, kept, _EARLIER) for field in ("sender", "recipients", "source")), _OF_MESSAGE,
)  # fmt: skip
_ON_ITS_WAY = ("delivery, kept", "delivery on its way", "options")
_ITS_CONNECTION = ("delivery, kept", "delivery and its connection")
HOOKS_RULES: Mapping[str, tuple[str, ...]] = {
    "queue_route": ("routing", "envelope only notes", "routing, kept"),
    "sender_connecting": _ON_ITS_WAY,
    "sender_connect": (*_ITS_CONNECTION, "options"),
    "sender_tls_error": (*_ITS_CONNECTION, "options"),
    "sender_connected": _ITS_CONNECTION,
    "sender_connection": _ON_ITS_WAY[:2],
    "sender_response_error": _ITS_CONNECTION,
    "sender_delivered": _ITS_CONNECTION,
}
"""What is checked of a hook; of others all arguments that have rules. Of the envelope only its notes are anybody's to
change at queue_route. The source address of a delivery has been used before a connection is looked for, and its return
path and recipients are not what a new connection is made for: over that other deliveries go, without those hooks. When
the server has answered all of it is over."""


def _getter(fields: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    get = attrgetter(*fields)
    return get if len(fields) > 1 else lambda value: (get(value),)


_GETTERS = {name: _getter([rule.field for rule in rules]) for name, rules in RULES.items()}

CHANGEABLE = frozenset(
    ("recipients", "notes", "meta", "headers", "chosen", "addresses", "parameters", "ehlo_keywords", "commands", "auth")
)
"""Fields whose values can be changed where they are."""
_CHANGEABLE = {
    name: [] if name.endswith(", kept") else [n for n, rule in enumerate(rules) if rule.field in CHANGEABLE]
    for name, rules in RULES.items()
}


def checked(hook: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the rules for a hook's arguments."""
    names = (name for one in arguments for name in (f"{one}, kept", one))  # what is kept first: others are read from it
    return HOOKS_RULES.get(hook) or tuple(name for name in names if name in RULES)


def argument_of(name: str) -> str:
    """The argument that rules of that name are about."""
    return name.partition(" ")[0].rstrip(",")


class KnownFields:
    """What the arguments of a hook are, field by field, before a plugin is called that may change them, and what it has
    made of them. names: of the rules for them, from `checked`."""

    __slots__ = ("_parts",)

    def __init__(self, names: tuple[str, ...], arguments: Mapping[str, Any]) -> None:
        found = ((name, arguments[argument_of(name)]) for name in names)
        self._parts = [_Part(name, argument) for name, argument in found if argument is not None]

    def wrong(self) -> str:
        """ "": what a plugin has left can be used. Else what it has set to what, and what it must be. What it has not
        changed is not judged."""
        for part in self._parts:
            if part.is_touched() and (sentence := part.wrong()):
                return sentence
        return ""

    def set_first(self, names: Collection[str]) -> list[str]:
        """Those of the fields of the first argument that a plugin has just set. Ask after `wrong`."""
        part = self._parts[0]
        if not part.touched:
            return []
        fields = zip(RULES[part.name], part.seen, part.get(part.argument), strict=True)
        return [rule.field for rule, old, new in fields if new is not old and rule.field in names]

    def renew(self) -> None:
        """They are what is there now, if `wrong` has found it good: for the next plugin."""
        for part in self._parts:
            if part.touched:
                part.take()

    def put_back(self) -> None:
        """What a plugin has changed is as it was."""
        for part in self._parts:
            for rule, old in zip(RULES[part.name], part.olds(), strict=True):
                _put(part.argument, rule, old)
            part.take()

    def put_right(self) -> None:
        """What nobody can use is as it was. What can be used stays: others may have changed it meanwhile."""
        for part in self._parts:
            for rule, old, new in zip(RULES[part.name], part.olds(), _GETTERS[part.name](part.argument), strict=True):
                if new is not old and not _can_be_used(rule, old, new):
                    _put(part.argument, rule, old)
            part.take()

    @property
    def first(self) -> Any:
        """The argument of the first rules."""
        return self._parts[0].argument

    @property
    def last(self) -> Any:
        return self._parts[-1].argument

    @property
    def first_field(self) -> Any:
        """What the first field of the first argument was."""
        return self._parts[0].seen[0]


class _Part:
    """One argument. seen: the values of its fields; copies: of those that can be changed where they are, by place.
    touched: as `is_touched` found."""

    __slots__ = ("argument", "copies", "get", "name", "seen", "touched")

    def __init__(self, name: str, argument: Any) -> None:
        self.name, self.argument, self.get = name, argument, _GETTERS[name]
        self.take()

    def take(self) -> None:
        self.touched = False
        seen = self.seen = self.get(self.argument)
        self.copies = [(place, _copied(seen[place])) for place in _CHANGEABLE[self.name]]

    def olds(self) -> list[Any]:
        olds = [*self.seen]
        for place, copy in self.copies:
            olds[place] = copy
        return olds

    def is_touched(self) -> bool:
        """Whether any field may be another than before."""
        news = self.get(self.argument)
        touched = True in map(is_not, news, self.seen)
        for place, copy in self.copies:
            touched = touched or _may_differ(copy, news[place])
        self.touched = touched
        return touched

    def wrong(self) -> str:
        olds, news = self.olds(), self.get(self.argument)
        for rule, old, new in compress(zip(RULES[self.name], olds, news, strict=True), map(is_not, news, olds)):
            if not _can_be_used(rule, old, new):
                return f"set {argument_of(self.name)}.{rule.field} to {_shown(rule.field, new)}; it must {rule.must}"
        return ""


def _copied(value: Any) -> Any:
    if type(value) is list:
        return [_known(one) if type(one) is Recipient else one for one in value]
    return _whole_copy(value) if type(value) is dict else value


def _known(one: Recipient) -> tuple[Recipient, str, dict[str, Any] | None, dict[str, Any] | None]:
    return one, one.address, _whole_copy(one.noted) if one.noted else None, _whole_copy(one.meta) if one.meta else None


def _whole_copy(value: dict[str, Any]) -> dict[str, Any]:
    """With what is in it, as notes may have lists and dicts in them."""
    nested = any(type(one) in _NESTED for one in value.values())
    return deepcopy(value) if nested else {**value}


def _may_differ(copy: Any, value: Any) -> bool:
    """Of the same object as before: whether there may be something else in it."""
    if type(value) is dict:
        return bool(copy or value)  # a plugin may have changed what is in them
    if type(value) is not list:
        return value is not copy
    if len(value) != len(copy):
        return True
    for old, new in zip(copy, value, strict=True):
        if type(old) is tuple:
            if old[0] is not new or old[1] is not new.address or new.noted is not None or new.meta is not None:
                return True
        elif old is not new:
            return True
    return False


def _can_be_used(rule: Rule, old: Any, new: Any) -> bool:
    try:
        return _is_fit(rule, old, new)
    except Exception:  # comparing is the value's own code
        return False


def not_configured(routing: Routing, configured: Configured) -> str:
    """As `KnownFields.wrong`, of what a plugin has chosen by a name of the configuration, but for its zone."""
    for field in ("pool", "dkim", "srs", "verp"):
        value = getattr(routing, field)
        if value and (lacks := configured.lacks(field, value)):
            return f"set routing.{field} to {_shown(field, value)}, {lacks}"
    return ""


def _is_fit(rule: Rule, old: Any, new: Any) -> bool:
    if rule.field == "recipients" and type(new) is list:
        known = {id(one[0]): one[1] for one in old if type(one) is tuple}
        changed = [one for one in new if known.get(id(one), ...) != getattr(one, "address", None)]
        if rule.test is kept:
            return not changed and [*known] == [*map(id, new)] and all(map(_of_one, new))
        return rule.test(changed) and all(map(_of_one, new))
    if rule.field in ("notes", "meta"):  # what is in them may have been changed
        return rule.test(new)
    return (type(new) is type(old) and bool(new == old)) or rule.test(new)


def _put(argument: Any, rule: Rule, old: Any) -> None:
    if type(old) is list:
        for one in old:
            if type(one) is tuple and type(one[0]) is Recipient:
                one[0].address, one[0].noted, one[0].meta = one[1:]
        old = [one[0] if type(one) is tuple else one for one in old]
    setattr(argument, rule.field, old)


Sections = list[tuple[Headers, list[bytes], list[bytes]]]


def sections(arguments: Mapping[str, Any]) -> Sections:
    """Header sections that a plugin may change, as they are."""
    found = [value if isinstance(value, Headers) else getattr(value, "headers", None) for value in arguments.values()]
    return [(one, [*one.fields], [*one.names]) for one in found if isinstance(one, Headers)]


def put_sections_back(known: Sections) -> None:
    """As they were."""
    for one, fields, names in known:
        one.fields, one.names = fields, names


def _shown(field: str, value: Any) -> str:
    if field in _SECRET:
        return f"a {type(value).__name__} that is not shown"
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
