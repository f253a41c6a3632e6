"""What a template must not contain, found before anything is rendered: syntax, unsafe expressions, unknown fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from itertools import islice

from jinja2 import TemplateSyntaxError, meta, nodes

from zonemta_py.merge.language import FUNCTIONS, METHODS, Language
from zonemta_py.merge.problems import TemplateProblem
from zonemta_py.merge.source import LINKS, Text

BUILT_IN = frozenset({"recipient", "campaign"})
"""Names every template has beside its fields."""
_ALLOWED = frozenset(
    (
        "Add",
        "And",
        "Assign",
        "AssignBlock",
        "Call",
        "Compare",
        "Concat",
        "CondExpr",
        "Const",
        "Dict",
        "Div",
        "Filter",
        "FloorDiv",
        "For",
        "Getattr",
        "Getitem",
        "If",
        "Keyword",
        "List",
        "Macro",
        "Mod",
        "Mul",
        "NSRef",
        "Name",
        "Neg",
        "Not",
        "Operand",
        "Or",
        "Output",
        "Pair",
        "Pos",
        "Slice",
        "Sub",
        "TemplateData",
        "Test",
        "Tuple",
        "With",
    )
)
FOUND_MAX = 100
_WITH_FILES = ("Block", "Extends", "FromImport", "Import", "Include")
_Found = Iterator[tuple[nodes.Node, str]]
_FOREIGN = re.compile(r"\{\{-?\s{0,9}(?:[.#/]|(?:if|else|end|range|template|TrackLink|Date)\b)")
"""Tags of Go's templates (listmonk) and of Handlebars (Mailgun, SES)."""
_OTHERS = "a tag of another program stands here; write {{ name }}, or {% if name %} … {% else %} … {% endif %}"


def review(text: Text, language: Language, columns: Collection[str] | None) -> list[TemplateProblem]:
    """columns: names of the fields there will be; None where they are not known."""
    try:
        tree = language.parse(text.content)
        found = list(islice(_unsafe(tree, language), FOUND_MAX)) or list(
            islice(_unknown(tree, language, columns), FOUND_MAX)
        )
    except TemplateSyntaxError as error:
        foreign = _FOREIGN.match(text.content, max(0, text.content.rfind("{{", 0, error.lineno + 1)))
        remedy = _OTHERS if foreign is not None else "correct the expression or tag here"
        return [_problem(text, error.lineno, f"{_sentence(error)}; {remedy}")]
    except ValueError as error:  # of a number
        return [_problem(text, 1, f"{str(error).partition(';')[0].lower()}; write a shorter number")]
    except RecursionError:
        return [_problem(text, 1, "an expression is nested too deeply; reduce its nesting")]
    return [_problem(text, node.lineno, sentence) for node, sentence in found]


def _sentence(error: TemplateSyntaxError) -> str:
    message = (error.message or "syntax error").rstrip(".").replace(". ", "; ")
    return message[0].lower() + message[1:]


def _problem(text: Text, offset: int, sentence: str) -> TemplateProblem:
    return TemplateProblem(text.file, *text.place(offset - 1), sentence)


def _unsafe(tree: nodes.Template, language: Language) -> _Found:
    own = {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
    macros = {node.name for node in tree.find_all(nodes.Macro)}
    called = {id(node.node) for node in tree.find_all(nodes.Call)}
    for node in tree.find_all(nodes.Node):
        kind = type(node).__name__
        if kind in _WITH_FILES:
            yield node, f"{kind.lower()} is not allowed, a template cannot use other files; put the text here"
        elif kind not in _ALLOWED:
            yield node, f"{kind} is not allowed in a template; remove it"
        elif isinstance(node, nodes.Getattr):
            yield from _attribute(node, own, id(node) in called)
        elif isinstance(node, nodes.Getitem) and _private(node.arg):
            yield node, "names that begin with _ are not allowed; remove it"
        elif isinstance(node, nodes.Filter):
            yield from _listed(node, "filter", node.name, language.filters)
        elif isinstance(node, nodes.Test):
            yield from _listed(node, "test", node.name, language.tests)
        elif isinstance(node, nodes.For) and node.recursive:
            yield node, "recursive loops are not allowed; write the loops inside each other"
        elif isinstance(node, nodes.Call):
            yield from _call(node, macros)


def _attribute(node: nodes.Getattr, own: set[str], called: bool) -> _Found:
    name = node.attr
    of_ours = isinstance(node.node, nodes.Name) and (node.node.name == "loop" or node.node.name in own)
    if name.startswith("_"):
        yield node, f".{name} is not allowed, fields have no such attribute; remove it"
    elif not of_ours and not (called and name in METHODS):
        yield node, f".{name} is not allowed, a field is text; use a filter, or {', '.join(sorted(METHODS))} with ()"


def _private(arg: nodes.Expr) -> bool:
    return isinstance(arg, nodes.Const) and isinstance(arg.value, str) and arg.value.startswith("_")


def _listed(node: nodes.Expr, what: str, name: str, known: Collection[str]) -> _Found:
    if name not in known:
        names = [one for one in known if one.isalnum()]
        near = get_close_matches(name, names, 1)
        remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(names))}"
        yield node, f"there is no {what} {name!r}; {remedy}"


def _call(node: nodes.Call, macros: set[str]) -> _Found:
    if isinstance(node.node, nodes.Name):
        if node.node.name not in {*FUNCTIONS, *macros}:
            yield node, f"there is no function {node.node.name}(); there are range(), namespace() and your own macros"
    elif not isinstance(node.node, nodes.Getattr):
        yield node, "only functions and methods with a name can be called; write their name before the ("


def _unknown(tree: nodes.Template, language: Language, columns: Collection[str] | None) -> _Found:
    asked = _asked(tree, language)  # compiles, so that what only then is wrong is found here
    for count, (node, name) in enumerate(asked if columns is not None else ()):
        if columns is not None and name not in columns and name not in LINKS:
            near = get_close_matches(name, [*columns, *BUILT_IN, *LINKS], 1) if count < FOUND_MAX else []
            remedy = f"did you mean {near[0]}?" if near else f"it has {', '.join(columns)}"
            yield node, f"the list has no column {name!r}; {remedy}"


def wanted(text: Text, language: Language) -> Iterator[tuple[str, int, int]]:
    """Names that must be columns of the list, with line and column of their first use. text: a good one."""
    for node, name in _asked(language.parse(text.content), language):
        yield name, *text.place(node.lineno - 1)


def _asked(tree: nodes.Template, language: Language) -> list[tuple[nodes.Node, str]]:
    """Names that are looked up and have no default, each where it stands first."""
    free = meta.find_undeclared_variables(tree) - set(language.globals) - BUILT_IN
    excused = {id(test.node) for test in tree.find_all(nodes.Test) if test.name in ("defined", "undefined")}
    excused |= {id(use.node) for use in tree.find_all(nodes.Filter) if use.name in ("d", "default")}
    found: dict[str, nodes.Node] = {}
    for node in tree.find_all(nodes.Name):
        if node.ctx == "load" and node.name in free and id(node) not in excused:
            found.setdefault(node.name, node)
    return [(node, name) for name, node in found.items()]
