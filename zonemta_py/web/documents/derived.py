"""Documents of the HTTP interface made from the types of answers (`queue/questions/`), which are described once."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from functools import cache
from itertools import pairwise
from typing import Any, NotRequired, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import ConfigDict, Field, create_model

from zonemta_py.queue.questions import UNLISTED, Default
from zonemta_py.web.documents.models import Model

T = TypeVar("T")


class OpenRow(Model):
    """May get more members at any time."""

    model_config = ConfigDict(extra="allow")


def document(answer: type[T], closed: bool = False) -> type[T]:
    """The same for FastAPI: a TypedDict, or a type with some in it, as models. closed: it gets no more members."""
    made: type[T] = _model(answer, closed)
    return made


def _model(hint: Any, closed: bool = False) -> Any:
    if is_typeddict(hint):
        return _of(hint, closed)
    if isinstance(hint, types.UnionType) or get_origin(hint) is Union:
        return Union[tuple(_model(one) for one in get_args(hint))]  # noqa: UP007
    return list[_model(get_args(hint)[0], closed)] if get_origin(hint) is list else hint  # type: ignore[misc]


@cache
def _of(answer: Any, closed: bool) -> type[Model]:
    said, fields = _docstrings(answer.__module__)[answer.__name__], dict[str, Any]()
    for name, hint in get_type_hints(answer, include_extras=True).items():
        left_out = get_origin(hint) is NotRequired
        kind, marks = _plain(get_args(hint)[0] if left_out else hint)
        if UNLISTED in marks:
            continue
        field: Any = Field(description=said.get(name))
        if left_out or name in answer.__optional_keys__:
            default = next((mark.value for mark in marks if isinstance(mark, Default)), _nothing(kind))
            with_default: Any = {"default_factory": default} if callable(default) else {"default": default}
            field = Field(**with_default, description=said.get(name))
        fields[name] = (_model(kind), field)
    base = Model if closed else OpenRow
    return create_model(answer.__name__, __base__=base, __doc__=answer.__doc__, __module__=__name__, **fields)


def _plain(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Without our marks, and those."""
    marks = getattr(hint, "__metadata__", ())
    ours = any(mark == UNLISTED or isinstance(mark, Default) for mark in marks)
    return (get_args(hint)[0], marks) if ours else (hint, ())


def _nothing(kind: Any) -> Any:
    """What a member is that may be left out, if nothing else is said."""
    return (
        (get_origin(kind) or kind)()
        if isinstance(get_origin(kind) or kind, type) and type(None) not in get_args(kind)
        else None
    )


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Class → member → what is said below it, as pydantic takes it from its own classes."""
    found = dict[str, dict[str, str]]()
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.ClassDef):
            own = found[node.name] = dict[str, str]()
            for base in node.bases:
                own |= found.get(base.id, {}) if isinstance(base, ast.Name) else {}
            for member, text in pairwise(node.body):
                if isinstance(member, ast.AnnAssign) and isinstance(text, ast.Expr):
                    own[ast.unparse(member.target)] = inspect.cleandoc(ast.literal_eval(text.value))
    return found
