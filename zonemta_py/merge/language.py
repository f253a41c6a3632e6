"""Jinja2 as templates may use it: sandboxed, nothing to load, every name of the language listed here.

A render has a budget of work, in characters: output, each turn of a loop, each call and filter takes from it what it
handles, so that no template runs long or fills memory, whatever it is made of. Offsets stand where Jinja2 has line
numbers, so that every problem has its column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any, cast

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.lexer import TokenStream
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import SandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace
from markupsafe import Markup

WORK_MAX = 4_000_000
RANGE_MAX = 10_000
NUMBER_MAX = 10**15
METHODS = frozenset({"capitalize", "endswith", "lower", "lstrip", "rstrip", "split", "startswith", "strip", "title",
                     "upper"})  # fmt: skip
_PLAIN_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "e", "escape", "first", "float", "forceescape", "int", "last",
    "length", "list", "lower", "max", "min", "reverse", "safe", "sort", "striptags", "title", "trim", "truncate",
    "unique", "upper", "urlencode", "wordcount",
)  # fmt: skip
_PLAIN_TESTS = (
    "!=", "<", "<=", "==", ">", ">=", "defined", "divisibleby", "eq", "equalto", "even", "false", "ge", "gt", "in",
    "le", "lower", "lt", "ne", "none", "number", "odd", "string", "true", "undefined", "upper",
)  # fmt: skip
_FORMAT = re.compile(r"(?:[^%]|%%|%[-+ 0#]?\d{0,2}(?:\.\d{1,2})?[sdfgxX])*")
_AT = re.compile(r" at (\d+)$")
_PRINTABLE = (str, int, float, Undefined)  # StrictUndefined raises when it is printed
_SIZED = (str, Markup, list, tuple, dict)
_LITERALS = (nodes.Const, nodes.List, nodes.Tuple, nodes.Dict)
_STEP = 16


class Work(Context):
    """What one part of a message is rendered with. left: characters of work it may still do."""

    left = WORK_MAX

    def spend(self, characters: int) -> None:
        self.left -= characters
        if self.left < 0:
            raise SecurityError(f"the template does more than {WORK_MAX:,} characters of work; make its loops shorter")


class Language(SandboxedEnvironment):
    """One for HTML (autoescape), one for all else."""

    context_class = Work
    intercepted_binops = frozenset({"+", "*", "%"})

    def __init__(self, autoescape: bool) -> None:
        super().__init__(
            autoescape=autoescape, undefined=StrictUndefined, keep_trailing_newline=True, finalize=_printed
        )
        self.filters = {name: _metered(FILTERS[name]) for name in _PLAIN_FILTERS}
        self.filters |= {"replace": _replace, "join": _join, "format": _format, "round": _round}
        self.filters |= {" each": _each, " joined": _joined, " charge": _charge, " single": _scalar}
        self.tests = {name: TESTS[name] for name in _PLAIN_TESTS}
        self.globals = {**FUNCTIONS}

    def _tokenize(self, source: str, name: Any, filename: Any = None, state: Any = None) -> TokenStream:
        stream = _with_offsets(self.lexer.tokeniter(source, name, filename, state), source)
        return TokenStream(self.lexer.wrap(stream, name, filename), name, filename)

    def code(self, tree: nodes.Template) -> CodeType:
        """Compiles a tree of `parse` that `review` has found good."""
        return self.compile(_bounded(tree))

    def template(self, code: CodeType) -> Template:
        return Template.from_code(self, code, self.globals)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if attr.startswith("_"):
            return False
        return attr in METHODS if isinstance(obj, str) else isinstance(obj, Namespace | LoopContext)

    def call(self, context: Work, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        context.spend(_STEP + _size(getattr(obj, "__self__", None)))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Work, operator: str, left: Any, right: Any) -> Any:  # type: ignore[override]
        if operator == "%" and isinstance(left, str):
            return _format(context, left, *(right if isinstance(right, tuple) else (right,)))
        if operator == "*" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError("only numbers can be multiplied")
        context.spend(_STEP + _size(left) + _size(right))
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, int) and abs(result) > NUMBER_MAX:
            raise SecurityError(f"a number is above {NUMBER_MAX:,}")
        return result


def _with_offsets(tokens: Iterable[tuple[int, str, str]], source: str) -> Iterator[tuple[int, str, str]]:
    """Line numbers replaced by offsets from 1. Raises TemplateSyntaxError that carries one, too."""
    position = 0
    try:
        for _, kind, value in tokens:
            position = source.index(value, position)
            yield position + 1, kind, value
            position += len(value)
    except TemplateSyntaxError as error:
        at = _AT.search(error.message or "")
        starts = [found.end() for found in re.finditer("\n", source)]
        line_start = ([0, *starts])[min(error.lineno, len(starts) + 1) - 1]
        offset = int(at[1]) if at else max(position, line_start)
        raise TemplateSyntaxError((error.message or "")[: at.start() if at else None], offset + 1) from None


def _bounded(tree: nodes.Template) -> nodes.Template:
    for loop in tree.find_all(nodes.For):
        loop.iter = _filtered(cast(nodes.Expr, loop.iter), " each", nodes.Const(_cost(loop.body)))
    for macro in tree.find_all(nodes.Macro):
        charge = _filtered(nodes.Const(""), " charge", nodes.Const(_cost(macro.body)))
        macro.body.insert(0, nodes.Output([charge], lineno=macro.lineno))
    for listed in tree.find_all(nodes.List):
        listed.items = [_single(item) for item in listed.items]
    for row in tree.find_all(nodes.Tuple):
        if row.ctx == "load":
            row.items = [_single(item) for item in row.items]
    for pair in tree.find_all(nodes.Pair):
        pair.value = _single(pair.value)
    for parent in reversed([tree, *tree.find_all(nodes.Node)]):  # inner ones first
        for name in parent.fields:
            value = getattr(parent, name, None)
            if isinstance(value, nodes.Concat):
                setattr(parent, name, _joining(value))
            elif isinstance(value, list):
                value[:] = [_joining(one) if isinstance(one, nodes.Concat) else one for one in value]
    return tree


def _single(item: nodes.Expr) -> nodes.Expr:
    """Lists hold no lists but those written in them: else few lines make one that takes for ever to compare."""
    return item if isinstance(item, _LITERALS) else _filtered(item, " single")


def _joining(concat: nodes.Concat) -> nodes.Filter:
    return _filtered(concat.nodes[0], " joined", *concat.nodes[1:])


def _filtered(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno or 1, environment=node.environment)


def _cost(body: list[nodes.Node]) -> int:
    return _STEP + sum(len(data.data) for node in body for data in [*node.find_all(nodes.TemplateData)])


def _size(value: object) -> int:
    return len(value) if type(value) in _SIZED else 1  # type: ignore[arg-type]


def _scalar(value: Any) -> Any:
    """What can be printed. Raises SecurityError."""
    if isinstance(value, _PRINTABLE):
        return value
    if value is None:
        raise SecurityError("there is nothing to print (none)")
    raise SecurityError(f"a {type(value).__name__} cannot stand here; use |join, |first or a loop")


@pass_context
def _printed(context: Work, value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is Markup:
        context.spend(len(value))
        return value
    return _scalar(value)


def _metered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is paid for by the size of its value."""
    wants = getattr(getattr(function, "jinja_pass_arg", None), "name", "")

    @pass_context
    def metered(context: Work, value: Any, *args: Any, **kwargs: Any) -> Any:
        context.spend(_STEP + _size(value))
        if wants == "environment":
            return function(context.environment, value, *args, **kwargs)
        if wants == "eval_context":
            return function(context.eval_ctx, value, *args, **kwargs)
        return function(value, *args, **kwargs)

    return metered


@pass_context
def _each(context: Work, values: Iterable[Any], cost: int) -> Iterator[Any]:
    for value in values:
        context.spend(cost)
        yield value


@pass_context
def _charge(context: Work, nothing: str, cost: int) -> str:
    context.spend(cost)
    return nothing


@pass_context
def _joined(context: Work, *values: Any) -> Any:
    return _join(context, values)


@pass_context
def _join(context: Work, values: Iterable[Any], separator: str = "") -> Any:
    parts = [_scalar(value) for value in values]
    context.spend(sum(map(_size, parts)) + len(parts) * (1 + len(separator)))
    markup = any(isinstance(part, Markup) for part in parts)
    return Markup(separator).join(parts) if markup else separator.join(map(str, parts))


@pass_context
def _replace(context: Work, value: Any, old: str, new: str, count: int = -1) -> Any:
    text = value if isinstance(value, str) else str(value)
    context.spend(_STEP + len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


@pass_context
def _format(context: Work, pattern: str, *values: Any) -> Any:
    if not _FORMAT.fullmatch(pattern):
        raise SecurityError("a format has only %s, %d, %f, %g and %x, two digits of width and of precision")
    context.spend(100 * len(values) + len(pattern) + sum(_size(_scalar(value)) for value in values))
    try:
        return pattern % values
    except TypeError as error:
        raise SecurityError(f"the values do not fit the format: {error}") from None


@pass_context
def _round(context: Work, value: Any, precision: int = 0) -> float:
    context.spend(_STEP)
    return round(float(value), max(-15, min(15, precision)))


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > RANGE_MAX:
        raise SecurityError(f"range() gives at most {RANGE_MAX:,} numbers")
    return made


FUNCTIONS: dict[str, Any] = {"range": _range, "namespace": Namespace}
"""What a template can call; a render passes them beside its fields, so that Jinja2 need not copy twice."""
