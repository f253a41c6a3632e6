"""Header fields of a template that are meant for this server, not for the reader: when its messages are to go, and how.

They mean what they mean in any mail (`mail.schedule_fields`), for all recipients of a batch alike, and are not sent.
What is a setting of the campaign (its name, zone, tenant, priority) cannot be set in the template too.
"""

from __future__ import annotations

from collections.abc import Iterator

from zonemta_py.mail import metadata
from zonemta_py.mail.list_id import FIELD, KEPT_MAX, kept, list_name
from zonemta_py.mail.schedule_fields import FIELDS
from zonemta_py.merge.problems import TemplateProblem
from zonemta_py.merge.source import TemplateSource

_ELSEWHERE = {
    "x-campaign": "--name", "x-priority-level": "--priority", "x-sending-zone": "--zone", "x-tenant": "--tenant",
}  # fmt: skip
_NAMES = {name.lower(): name for name in FIELDS}
_TO_US = frozenset({*_NAMES, *_ELSEWHERE})
_META = metadata.FIELD.decode()


def is_to_us(name: str) -> bool:
    """Whether the field with that name is in no message."""
    return name.lower() in _TO_US or name.lower().startswith(_META)


def said(source: TemplateSource) -> dict[str, str]:
    """Name, as in `schedule_fields.FIELDS`, → value. The first of several counts."""
    found: dict[str, str] = {}
    for name, text in source.headers:
        if name.lower() in _NAMES and name.lower() not in _ELSEWHERE:
            found.setdefault(_NAMES[name.lower()], " ".join(text.content.split()))
    return found


def list_id(source: TemplateSource) -> str:
    """Its List-Id, by which its messages are of a list; "": there is none, or it is not the same for all recipients."""
    for name, text in source.headers:
        if name.lower() == FIELD:
            value = "" if "{" in text.content else kept(" ".join(text.content.split()))
            return value if value and list_name(value) else ""
    return ""


def fixed(source: TemplateSource) -> dict[str, str]:
    """Lower-case name → value of the fields that are the same for all recipients, as much of each as is kept with any
    mail: what zones and plugins may choose by. The first of several counts."""
    found: dict[str, str] = {}
    own = [("Subject", source.subject), ("From", source.sender)]
    for name, text in (*own, *source.headers):
        if not is_to_us(name) and name.lower() not in found:
            found[name.lower()] = "" if "{" in text.content else " ".join(text.content.split())[:KEPT_MAX]
    return {name: value for name, value in found.items() if value}


def unclear(source: TemplateSource) -> Iterator[TemplateProblem]:
    """Fields that are not allowed: their places, and the remedy."""
    for name, text in source.headers:
        option = _ELSEWHERE.get(name.lower(), "")
        if name.lower().startswith(_META):
            given = f"{metadata.COLUMN_PREFIX}{name[len(_META) :]}"
            sentence = f"{name}: a template has no metadata; remove it, and give each recipient a column {given}"
        elif option:
            sentence = f"{name} is a setting of the campaign, not of its template; remove it, and send with {option}"
        elif name.lower() in _NAMES and "{" in text.content:
            sentence = f"{name} is the same for all recipients of a batch; write it without {{{{ … }}}}"
        elif name.lower() == "x-unsubscribe" and text.content.strip().lower() == "list" and not list_id(source):
            sentence = f"{name}: list needs a List-Id that is the same for all recipients; add it, without {{{{ … }}}}"
        else:
            continue
        yield TemplateProblem(text.file, text.line, text.column, sentence)
