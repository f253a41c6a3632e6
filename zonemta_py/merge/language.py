"""Jinja2 as templates may use it: sandboxed, nothing to load, every name of the language listed here.

A message has a budget of work (`meter`): output, turns of loops, calls, filters, tests, comparisons, slices and lists
take from it what they handle, so that no template runs long or fills memory, whatever it is made of. Offsets stand
where Jinja2 has line numbers, so that every problem has its column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from types import CodeType
from typing import Any, cast

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.lexer import TokenStream
from jinja2.runtime import LoopContext
from jinja2.sandbox import SandboxedEnvironment
from jinja2.tests import TESTS
from jinja2.utils import Namespace
from markupsafe import Markup

from zonemta_py.merge import localized, meter
from zonemta_py.merge.meter import CALL, NODE, SEARCH, STEP, TURN, MeteredContext, scalar, size

RANGE_MAX = 10_000
TOKENS_MAX = 10_000
"""Of a template: two thousand fields, compiled in a second, of which no one waits for more than a tenth."""
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
_LITERALS = (nodes.Const, nodes.List, nodes.Tuple, nodes.Dict)


class Language(SandboxedEnvironment):
    """One for HTML (autoescape), one for all else."""

    context_class = MeteredContext
    intercepted_binops = frozenset({"+", "*", "%"})

    def __init__(self, autoescape: bool) -> None:
        super().__init__(
            autoescape=autoescape, undefined=StrictUndefined, keep_trailing_newline=True, finalize=meter.printed
        )
        self.filters = {name: meter.metered(name, FILTERS[name]) for name in _PLAIN_FILTERS}
        self.filters |= {name: meter.metered(name, _default) for name in ("d", "default")}
        self.filters |= {"replace": _replace, "join": _join, "format": _format, "round": _round}
        self.filters |= localized.FILTERS
        self.filters |= {" each": meter.each, " joined": _joined, " charge": meter.charge, " single": scalar}
        self.filters |= {" weighed": meter.weighed, " searched": meter.searched}
        self.tests = {name: meter.tested(name, cast(Any, TESTS[name])) for name in _PLAIN_TESTS}
        self.globals = {**FUNCTIONS}

    def parse(self, source: str, name: str | None = None, filename: str | None = None) -> nodes.Template:
        return localized.localize(super().parse(source, name, filename))

    def _tokenize(self, source: str, name: Any, filename: Any = None, state: Any = None) -> TokenStream:
        stream = _with_offsets(self.lexer.tokeniter(source, name, filename, state), source)
        return TokenStream(self.lexer.wrap(stream, name, filename), name, filename)

    def tokens(self, source: str, most: int) -> int:
        """Tokens of the language in a text; a little more than `most` if there are more.

        Raises TemplateSyntaxError.
        """
        tokens = (kind for _, kind, _ in self.lexer.tokeniter(source, None))
        return sum(1 for _ in islice((kind for kind in tokens if kind != "whitespace"), most + 1))

    def code(self, tree: nodes.Template) -> CodeType:
        """Compiles a tree of `parse` that `review` has found good."""
        return self.compile(_bounded(tree))

    def template(self, code: CodeType) -> Template:
        return Template.from_code(self, code, self.globals)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if attr.startswith("_"):
            return False
        return attr in METHODS if isinstance(obj, str) else isinstance(obj, Namespace | LoopContext)

    def call(self, context: MeteredContext, obj: Any, /, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        values = (*args, *kwargs.values()) if kwargs else args
        context.spend(CALL + meter.price(getattr(obj, "__name__", ""), getattr(obj, "__self__", None), values))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: MeteredContext, operator: str, left: Any, right: Any) -> Any:  # type: ignore[override]
        if operator == "%" and isinstance(left, str):
            return _format(context, left, *(right if isinstance(right, tuple) else (right,)))
        if operator == "*" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError("only numbers can be multiplied")
        context.spend(STEP + size(left) + size(right))
        return meter.number(super().call_binop(context, operator, left, right))


def _default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    """Jinja2's, which also takes the place of an empty field: a list has columns for all, and cells for some."""
    empty = isinstance(value, Undefined) or (isinstance(value, str) and not value.strip())
    return default_value if empty or (boolean and not value) else value


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
    costs = _Costs()
    for loop in tree.find_all(nodes.For):
        tests = [loop.test] if loop.test is not None else []
        loop.iter = _filtered(cast(nodes.Expr, loop.iter), " each", nodes.Const(costs.turn([*loop.body, *tests])))
    for macro in tree.find_all(nodes.Macro):
        charge = _filtered(nodes.Const(""), " charge", nodes.Const(costs.turn(macro.body)))
        macro.body.insert(0, nodes.Output([charge], lineno=macro.lineno))
    for compared in tree.find_all(nodes.Compare):
        _weigh(compared)
    for item in tree.find_all(nodes.Getitem):
        if isinstance(item.arg, nodes.Slice):
            item.node = _filtered(item.node, " weighed")
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
    """Lists hold no lists but those written in them: otherwise a few lines make one that takes for ever to compare."""
    return item if isinstance(item, _LITERALS) else _filtered(item, " single")


def _joining(concat: nodes.Concat) -> nodes.Filter:
    return _filtered(concat.nodes[0], " joined", *concat.nodes[1:])


def _filtered(node: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno or 1, environment=node.environment)


class _Costs:
    """What is the same at each turn: nodes and text. Each node is counted once for all that it stands in."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def turn(self, body: list[nodes.Node]) -> int:
        return TURN + sum(map(self._of, body))

    def _of(self, node: nodes.Node) -> int:
        known = self._known.get(id(node))
        if known is None:
            own = len(node.data) if isinstance(node, nodes.TemplateData) else 0
            if isinstance(node, nodes.Getattr | nodes.Getitem):
                own += STEP
            known = self._known[id(node)] = NODE + own + sum(map(self._of, node.iter_child_nodes()))
        return known


def _weigh(compared: nodes.Compare) -> None:
    """Charges what a comparison has to read; beside a constant that is no more than the constant."""
    both = (compared.expr, compared.ops[0].expr)
    searches = any(operand.op in ("in", "notin") for operand in compared.ops)
    if len(compared.ops) == 1 and not searches and any(isinstance(one, nodes.Const) for one in both):
        return
    compared.expr = _filtered(compared.expr, " weighed")
    for operand in compared.ops:
        operand.expr = _filtered(operand.expr, " searched" if operand.op in ("in", "notin") else " weighed")


@pass_context
def _joined(context: MeteredContext, *values: Any) -> Any:
    return _join(context, values)


@pass_context
def _join(context: MeteredContext, values: Iterable[Any], separator: str = "") -> Any:
    parts = [scalar(value) for value in meter.each(context, values, NODE)]
    context.spend(sum(map(size, parts)) + len(parts) * len(separator))
    markup = any(isinstance(part, Markup) for part in parts)
    return Markup(separator).join(parts) if markup else separator.join(map(str, parts))


@pass_context
def _replace(context: MeteredContext, value: Any, old: str, new: str, count: int = -1) -> Any:
    text = value if isinstance(value, str) else str(value)
    context.spend(STEP + SEARCH * len(text) + len(old))
    context.spend(text.count(old) * len(new))
    return text.replace(old, new, count)


@pass_context
def _format(context: MeteredContext, pattern: str, *values: Any) -> Any:
    if not _FORMAT.fullmatch(pattern):
        raise SecurityError("a format has only %s, %d, %f, %g and %x, two digits of width and of precision")
    context.spend(CALL * (1 + len(values)) + len(pattern) + sum(size(scalar(value)) for value in values))
    try:
        return pattern % values
    except TypeError as error:
        raise SecurityError(f"the values do not fit the format: {error}") from None


@pass_context
def _round(context: MeteredContext, value: Any, precision: int = 0) -> float:
    context.spend(STEP)
    return round(float(value), max(-15, min(15, precision)))


def _range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > RANGE_MAX:
        raise SecurityError(f"range() gives at most {RANGE_MAX:,} numbers")
    return made


FUNCTIONS: dict[str, Any] = {"range": _range, "namespace": Namespace}
"""What a template can call; a render passes them beside its fields, so that Jinja2 need not copy twice."""
