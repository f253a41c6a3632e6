"""The filter of lists and tasks (`queue/tasks/where.py`), as a type and as parameters of a query."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from fastapi import Query, Request
from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.web.documents import values
from zonemta_py.web.documents.models import Model
from zonemta_py.web.documents.problem import FieldError, invalid

VALUES_MAX = 100
_TEXT = {"type": "string", "pattern": values.LINE_PATTERN, "maxLength": 500}
Text = Annotated[str, AfterValidator(values.field), Field(max_length=500), WithJsonSchema(_TEXT)]


def _class(given: str) -> str:
    if given not in CLASSES:
        raise ValueError(f"there is no class {given[:40]!a}; use one of {', '.join(CLASSES)}")
    return given


_CLASS = {"type": "string", "enum": list(CLASSES)}
Class = Annotated[str, AfterValidator(_class), WithJsonSchema(_CLASS)]
State = Literal["queued", "deferred", "leased", "held", "deleted", "bounced"]
Seconds = Annotated[float, Field(ge=0, le=10**10, allow_inf_nan=False)]
Priority = Annotated[int, Field(ge=-9, le=9), BeforeValidator(values.whole)]
Part = Annotated[
    str,
    AfterValidator(values.field),
    Field(min_length=1, max_length=500),
    WithJsonSchema(_TEXT | {"minLength": 1}),
]
FieldName = Annotated[
    str, Field(pattern=values.HEADER_PATTERN), WithJsonSchema({"type": "string", "pattern": values.HEADER_PATTERN})
]
_FIELDS = Field(min_length=1, max_length=20, json_schema_extra={"additionalProperties": False})


def _listed(given: Any) -> Any:
    return given if isinstance(given, list) or given is None else [given]


def _or_list(schema: dict[str, Any]) -> WithJsonSchema:
    lists = {"type": "array", "items": schema, "minItems": 1, "maxItems": VALUES_MAX}
    return WithJsonSchema({"anyOf": [schema, lists]})


_Lists = Field(min_length=1, max_length=VALUES_MAX)
_PRIORITY = {"type": "integer", "minimum": -9, "maximum": 9}
Texts = Annotated[list[Text], _Lists, BeforeValidator(_listed), _or_list(_TEXT)]
Parts = Annotated[list[Part], _Lists, BeforeValidator(_listed), _or_list(_TEXT | {"minLength": 1})]
States = Annotated[
    list[State], _Lists, BeforeValidator(_listed), _or_list({"type": "string", "enum": list(get_args(State))})
]
Classes = Annotated[list[Class], _Lists, BeforeValidator(_listed), _or_list(_CLASS)]
Priorities = Annotated[list[Priority], _Lists, BeforeValidator(_listed), _or_list(_PRIORITY)]


class Filter(Model):
    """Which recipients are meant. Each key may have a list: any of its values; all keys must hold. In texts, * stands
    for any part."""

    id: Parts | None = None
    """The message's id."""
    sender: Texts | None = None
    recipient: Parts | None = None
    domain: Parts | None = None
    """The recipient's."""
    site: Parts | None = None
    provider: Texts | None = None
    zone: Parts | None = None
    source: Texts | None = None
    campaign: Texts | None = None
    tenant: Texts | None = None
    user: Texts | None = None
    """The login or key that handed it in."""
    subject: Parts | None = None
    """A part of it, in any case."""
    state: States | None = None
    class_: Annotated[Classes | None, Field(alias="class")] = None
    """The class of the latest reply."""
    older_s: Seconds | None = None
    younger_s: Seconds | None = None
    """How long ago it was accepted."""
    priority: Priorities | None = None
    header: Annotated[dict[FieldName, Part], _FIELDS] | None = None
    """Parts of header fields, in any case."""
    all: bool | None = None
    """Everything; needed if no other key is given."""

    def given(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True)


_HEADER = re.compile(r"([!-9;-~]{1,76}): ?(.+)", re.DOTALL)
_Many = Query(max_length=VALUES_MAX)


async def of_query(
    request: Request,
    id: Annotated[list[Part], _Many] = [],  # noqa: B006
    sender: Annotated[list[Text], _Many] = [],  # noqa: B006
    recipient: Annotated[list[Part], _Many] = [],  # noqa: B006
    domain: Annotated[list[Part], _Many] = [],  # noqa: B006
    site: Annotated[list[Part], _Many] = [],  # noqa: B006
    provider: Annotated[list[Text], _Many] = [],  # noqa: B006
    zone: Annotated[list[Part], _Many] = [],  # noqa: B006
    source: Annotated[list[Text], _Many] = [],  # noqa: B006
    campaign: Annotated[list[Text], _Many] = [],  # noqa: B006
    tenant: Annotated[list[Text], _Many] = [],  # noqa: B006
    user: Annotated[list[Text], _Many] = [],  # noqa: B006
    subject: Annotated[list[Part], _Many] = [],  # noqa: B006
    state: Annotated[list[State], _Many] = [],  # noqa: B006
    class_: Annotated[list[Class], Query(alias="class", max_length=VALUES_MAX)] = [],  # noqa: B006
    older_s: Annotated[Seconds | None, Query(description="Accepted longer ago.")] = None,
    younger_s: Annotated[Seconds | None, Query(description="Accepted less long ago.")] = None,
    priority: Annotated[list[Annotated[int, Field(ge=-9, le=9)]], _Many] = [],  # noqa: B006
    header: Annotated[list[Part], Query(max_length=20, description="Name: part of its value.")] = [],  # noqa: B006
) -> dict[str, Any]:
    """Each may be given several times: any of its values matches. Raises RequestProblem."""
    lists = {
        "id": id, "sender": sender, "recipient": recipient, "domain": domain, "site": site, "provider": provider,
        "zone": zone, "source": source, "campaign": campaign, "tenant": tenant, "user": user, "subject": subject,
        "state": state, "class": class_, "priority": priority, "header": [_field(one) for one in header],
        "older_s": older_s, "younger_s": younger_s,
    }  # fmt: skip
    return {name: value for name, value in lists.items() if value not in ([], None)}


def _field(text: str) -> dict[str, str]:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise invalid([FieldError("query header", f"{text[:60]!a} is not Name: part of its value; write it so")])
    return {found[1]: found[2]}
