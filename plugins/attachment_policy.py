"""Refuses, discards, holds, marks or takes out attachments by type, name and size, while the message arrives.

    [plugins]
    enabled = ["attachment_policy"]

    [[plugins.options.attachment_policy.rules]]
    name = "programs"
    extensions = ["exe", "scr", "js", "vbs"]
    types = ["application/x-msdownload"]
    action = "reject"
    reply = "550 5.7.1 Programs are not sent from here; put it into your share and send a link"

    [[plugins.options.attachment_policy.rules]]
    name = "large"
    larger_than = 10_000_000
    action = "zone"
    zone = "slow"

    [[plugins.options.attachment_policy.rules]]
    name = "archives"
    types = ["application/zip"]
    action = "hold"

The first rule that matches a part decides. A part matches if one of `types` or `extensions` does (all parts, if a rule
names neither), and its content is larger than `larger_than` bytes. Nothing is kept: sizes are counted as the bytes
pass, and a message with a part that is too large is refused as soon as it is. What "remove" takes out is replaced by a
text that says so; in signed or encrypted mail, where that would break the signature, the message is refused instead.
Held mail goes out when an operator releases it (`zonemta queue release`).
Names are all that a part has, whichever of them a reader's program will show; archives and attached messages are not
looked into. The plugin asks nobody, so nothing can be down.
"""

from __future__ import annotations

import base64
import fnmatch
import quopri
import re
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from zonemta_py.plugin import Delivery, Drop, Envelope, Headers, Hold, Info, Node, PluginApi, Reject, Stream, encoded

NOTE = "attachment_policy"
"""In the notes of a message: which rules hold or mark it."""
NOTED_MAX = 20

FIELD_CHARACTERS_MAX, FIELDS_MAX = 65_536, 20
"""Of Content-Disposition and Content-Type that are read for file names."""

_REPLY = re.compile(r"(?:([45]\d\d)\s+)?(\S.*)", re.DOTALL)
_TYPE = re.compile(r"[^\s/;]+/[^\s/;]+")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Characters that make a name look like another one."""
_NAME = re.compile(
    r"""(?<![\w*-])(?:file)?name(?:\*(\d{1,3}))?(\*?)\s*=\s*("(?:[^"\\]|\\.)*"?|[^;]*)""", re.IGNORECASE | re.DOTALL
)
_WORD = re.compile(r"=\?[^?\s]{1,60}\?([bq])\?([^?]*)\?=", re.IGNORECASE)
_GAP = re.compile(r"\?=\s+=\?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FIRST = re.compile(r"[\s(,]")
_SEALED = frozenset(("multipart/signed", "multipart/encrypted"))
_SEALED_TYPES = ("application/pkcs7-mime", "application/x-pkcs7-mime")


class AttachmentRule(BaseModel):
    """What a part must be, and what becomes of it."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    name: str = Field("", max_length=100, pattern=r"[^\x00-\x1f\x7f]*")
    """Name in counters, and for operators; empty: its number, from 1."""
    types: list[str] = []
    """Content types, such as application/zip or video/*."""
    extensions: list[str] = []
    """Ends of file names, without the dot: exe, tar.gz."""
    larger_than: int = Field(0, ge=0)
    """Bytes of the content, decoded, above which the rule matches; 0: whatever its size. Of quoted-printable, about."""
    action: Literal["reject", "drop", "hold", "mark", "remove", "zone", "accept"] = "reject"
    """reject: refuse the message. drop: accept it and send nothing. hold: until an operator releases it. mark: a header
    field says which rule it was. remove: send it without the part. zone: send the message through `zone`. accept: rules
    below are not asked about the part."""
    reply: str = "550 5.7.1 Attachments of this kind are not sent from here"
    """What the client is told: code and text."""
    zone: str = ""
    """Sending zone for the whole message."""

    @field_validator("types")
    @classmethod
    def _check_types(cls, values: list[str]) -> list[str]:
        for value in values:
            if not _TYPE.fullmatch(value):
                raise ValueError(f"{value!r} is not a content type such as application/zip or video/*")
        return [value.lower() for value in values]

    @field_validator("extensions")
    @classmethod
    def _check_extensions(cls, values: list[str]) -> list[str]:
        for value in values:
            if not value.strip(". ") or any(character in value for character in "*?/"):
                raise ValueError(f"{value!r} is not the end of a file name such as exe or tar.gz")
        return [value.lower().lstrip(".") for value in values]

    @field_validator("reply")
    @classmethod
    def _check_reply(cls, value: str) -> str:
        if not _REPLY.fullmatch(value.strip()):
            raise ValueError('is not a reply such as "550 5.7.1 Not sent from here"')
        return value.strip()

    @model_validator(mode="after")
    def _check(self) -> AttachmentRule:
        if (self.action == "zone") != bool(self.zone):
            raise ValueError('zone and action = "zone" belong together')
        if self.action == "remove" and self.larger_than:
            raise ValueError("what is too large is known only when it has passed; use reject, drop or zone for sizes")
        return self

    def names(self, node: Node, filenames: list[str]) -> bool:
        """Whether type or name match."""
        if not self.types and not self.extensions:
            return True
        if any(fnmatch.fnmatchcase(node.content_type, one) for one in self.types):
            return True
        return any(name == end or name.endswith(f".{end}") for name in filenames for end in self.extensions)

    def refusal(self) -> Reject:
        found = _REPLY.fullmatch(self.reply)
        assert found is not None
        return Reject(int(found[1] or 550), found[2])


class Options(BaseModel):
    """[plugins.options.attachment_policy]"""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    rules: list[AttachmentRule] = Field(min_length=1)
    """Asked in their order."""
    unread: Literal["reject", "accept"] = "reject"
    """What becomes of a message whose parts cannot all be looked at: nested too deep, too many, or broken."""
    mark_field: str = Field("X-Attachment-Policy", pattern=r"[!-9;-~]+")
    """Field with the names of the rules that mark a message."""


def setup(api: PluginApi, options: Options) -> None:
    """Numbers the rules."""
    global _api, _rules, _mark_field, _unread
    _api, _rules, _mark_field, _unread = api, options.rules, options.mark_field, options.unread
    for number, rule in enumerate(_rules, 1):
        rule.name = rule.name or str(number)
        if rule.zone and api.zones and rule.zone not in api.zones:
            raise ValueError(f"rule {rule.name}: there is no zone {rule.zone!r}; there are {', '.join(api.zones)}")


_api: PluginApi
_rules: list[AttachmentRule]
_mark_field: str
_unread: str


async def message_queue(envelope: Envelope, info: Info) -> None:
    """Refuses what nobody could look at."""
    if info.unread and _unread == "reject":
        _api.count("rejected", label="unread")
        raise Reject(554, f"5.6.0 This message is refused, since {info.unread}")


async def message_rewrite(envelope: Envelope, node: Node, stream: Stream) -> AsyncIterator[bytes] | None:
    """Looks at one part; follows its bytes only if a rule asks for their number."""
    names, sized = _filenames(node), list[AttachmentRule]()
    for rule in _rules:
        if not rule.names(node, names):
            continue
        if not rule.larger_than:
            if sized and rule.action == "remove":
                stream = _measured(sized, envelope, node, stream)
            if not sized or rule.action == "remove":
                return _decide(rule, envelope, node, stream)
            sized.append(rule)
            break
        sized.append(rule)
    return _measured(sized, envelope, node, stream) if sized else None


async def sender_headers(delivery: Delivery, headers: Headers) -> None:
    """Holds, once; else marks."""
    noted = delivery.notes.get(NOTE, ())
    for action, name in noted:
        if action == "hold" and not any(delivery.attempts):
            raise Hold(f"attachment policy, rule {name}")
    if marks := [name for action, name in noted if action == "mark"]:
        headers.replace(_mark_field, ", ".join(marks))


def _decide(rule: AttachmentRule, envelope: Envelope, node: Node, stream: Stream) -> AsyncIterator[bytes] | None:
    """What the rule says of a part that has begun. Raises verdicts."""
    _judge(rule, envelope)
    if rule.action != "remove":
        return None
    if _SEALED.intersection(node.parents) or node.content_type in _SEALED_TYPES:
        raise rule.refusal()
    name = node.filename or node.content_type
    node.headers.replace("Content-Type", "text/plain; charset=utf-8")
    node.headers.replace("Content-Transfer-Encoding", "quoted-printable")
    node.headers.remove("Content-Disposition")
    text = f"[{_UNSEEN.sub('', name)} was taken out of this message by the sender's mail server.]\r\n"
    return encoded("quoted-printable", _instead(text, stream))


def _judge(rule: AttachmentRule, envelope: Envelope) -> None:
    """Raises verdicts."""
    _api.count(rule.action, label=rule.name)
    if rule.action == "reject":
        raise rule.refusal()
    if rule.action == "drop":
        raise Drop(f"attachment policy, rule {rule.name}")
    if rule.action == "zone":
        envelope.sending_zone = rule.zone
    if rule.action in ("hold", "mark"):
        noted = envelope.notes.get(NOTE, [])
        if [rule.action, rule.name] not in noted and len(noted) < NOTED_MAX:
            envelope.notes[NOTE] = [*noted, [rule.action, rule.name]]


async def _instead(text: str, stream: Stream) -> AsyncIterator[bytes]:
    """A text; what was there is read and forgotten."""
    yield text.encode()
    async for _ in stream:
        pass


async def _measured(
    rules: list[AttachmentRule], envelope: Envelope, node: Node, stream: Stream
) -> AsyncIterator[bytes]:
    """The bytes as they are. rules: the first whose size is passed decides, the last may have none."""
    letters, size, waiting = 0, 0, list(rules)
    async for block in stream:
        letters += _letters(block, node.encoding)
        size = letters * 3 // 4 if node.encoding == "base64" else letters
        if waiting and waiting[0].larger_than and size > waiting[0].larger_than:
            _judge(waiting[0], envelope)
            waiting.clear()
        yield block
    for rule in waiting:
        if size > rule.larger_than or not rule.larger_than:
            _judge(rule, envelope)
            return


def _letters(block: bytes, encoding: str) -> int:
    """Bytes of content; of base64, characters that carry it, four for three bytes."""
    if encoding == "base64":
        return len(block) - sum(map(block.count, (b"\r", b"\n", b"=")))
    return len(block) - 2 * block.count(b"=") if encoding == "quoted-printable" else len(block)


def _filenames(node: Node) -> list[str]:
    """In lower case, all that a reader's program may see: programs choose differently among several parameters and
    fields, and forgive different mistakes in them."""
    found = [node.filename]
    for field in ("Content-Disposition", "Content-Type"):
        for said in node.headers.all(field)[:FIELDS_MAX]:
            said = said[:FIELD_CHARACTERS_MAX]
            found += _named(said)
            if "=?" in said:
                found += _named(_WORD.sub(_word, _GAP.sub("?==?", said)))
    return [_UNSEEN.sub("", name).strip(" .'\"").lower() for name in found if name]


def _named(said: str) -> list[str]:
    """File names in a field, with those in pieces put together (RFC 2231)."""
    found, pieces = list[str](), dict[int, str]()
    for number, percent, value in _NAME.findall(said):
        value = value.strip().strip('"') if value.startswith('"') else value.strip()
        if percent:
            value = unquote(value).rpartition("'")[2]
        if number:
            pieces.setdefault(int(number), value)
        found += [value, _ESCAPED.sub(r"\1", value), _FIRST.split(value)[0]]
    return [*found, "".join(pieces[number] for number in sorted(pieces))]


def _word(found: re.Match[str]) -> str:
    """An encoded word's text (RFC 2047), in an encoding that has ASCII as it is."""
    coded = found[2].encode("ascii", "replace")
    try:
        plain = base64.b64decode(coded + b"==") if found[1] in "bB" else quopri.decodestring(coded, header=True)
    except ValueError:
        return found[0]
    return plain.decode("utf-8", "replace").replace("\0", "")
