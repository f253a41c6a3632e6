"""The page of all hooks and all fields of their arguments, made from their declarations: docs/PLUGIN_FIELDS.md.

A field is described where its class says `name: …` in its docstring, or by its property; what a plugin may set it to is
what `values.RULES` accept.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.mail.headers import Headers
from zonemta_py.mail.reply import Reply
from zonemta_py.plugin import spec, values
from zonemta_py.plugin.admin import OFFERED, ORDERS, PluginAdmin
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.arguments import (
    Address,
    Attempts,
    Auth,
    Bounce,
    Connection,
    ConnectOptions,
    Deferral,
    Ending,
    Info,
    NextTry,
    Node,
    Notice,
    Process,
    Refusal,
    Routing,
    Server,
    Session,
    Sni,
    StoredMessage,
)
from zonemta_py.plugin.event_batches import MailEvent
from zonemta_py.plugin.http import HttpAnswer, HttpError, HttpRequest
from zonemta_py.plugin.store import SharedStore, Taking
from zonemta_py.plugin.verdicts import Defer, Drop, Hold, Reject
from zonemta_py.queue import questions
from zonemta_py.queue.api import Delivery, Outcome, Result
from zonemta_py.queue.questions.question import Question

KINDS: tuple[type, ...] = (
    Address, Attempts, Auth, Bounce, ConnectOptions, Connection, Deferral, Delivery, Ending, Envelope, MailEvent,
    Headers, HttpAnswer, HttpRequest, Info, NextTry, Node, Notice, Outcome, PluginAdmin, PluginApi, Process,
    Recipient, Refusal, Reply, Result, Routing, Server, Session, SharedStore, Sni, StoredMessage, Taking,
)  # fmt: skip
INTERNAL = frozenset(
    ("about", "begins", "provide", "begun", "from_lines", "from_wire", "life", "named", "noted", "to_wire")
)
"""Of our own; nothing for plugins."""
_INTERNAL_OF: dict[type, tuple[str, ...]] = {
    Envelope: ("from_metadata", "metadata"),
    Headers: ("append", "fields", "names", "remove_like"),
    PluginApi: ("commands", "file", "headers", "numbers"),
}
_HEAD = """\
# Hooks and fields

Made from the code by `python -m zonemta_py.reference --plugins > docs/PLUGIN_FIELDS.md`. [PLUGINS.md](PLUGINS.md) says
how a plugin is written; this page is for looking things up: each hook with its arguments, then each kind of argument
with its fields. A plugin's function names those of the arguments that it needs.

"May be set to" is checked after each call of a hook; something else is the plugin's failure, and taken back. Fields
without it are for reading. What is set has an effect where the hook says that it may be changed; hooks that are for
information change nothing. Dicts and lists may be changed in place too.
"""
_QUESTIONS = """\
`await api.admin.ask("explain", what="anna@example.com")`; all arguments have names. Orders change something, and have
the plugin as their actor. Times are UNIX time in ms; `next` is the cursor of the next page, to be passed as `after`.

| question | takes | answers | what |
|---|---|---|---|"""
_MARKED = re.compile(r"\b(?:Unlisted|NotRequired)\[((?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*)\]")
_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_VERDICTS = (Reject, Defer, Drop, Hold, HttpError)


def page() -> str:
    """docs/PLUGIN_FIELDS.md."""
    parts = [_HEAD, "## Hooks, in the order in which mail meets them\n", *map(_hook, spec.HOOKS.values())]
    parts += ["## Verdicts\n", _verdicts(), "## Arguments\n", *map(_kind, KINDS)]
    parts += ["## Questions and orders: `api.admin.ask`\n", _QUESTIONS, *_questions(), "", *_answers()]
    return "\n".join(parts)


def _hook(hook: spec.Hook) -> str:
    declared = getattr(spec, hook.name)
    signature = inspect.signature(declared)
    given = [f"`{one.name}`: {_linked(str(one.annotation))}" for one in signature.parameters.values()]
    raising = ", ".join(verdict.__name__ for verdict in hook.verdicts) or "nothing"
    failing = "work goes on without it" if hook.failing == "pass" else "451"
    if hook.process == "events":
        failing = "the batch comes again"
    facts = [
        f"process: {hook.process}", f"may raise: {raising}", f"if it fails: {failing}",
        *([] if hook.waits else ["must not wait"]),
        *([] if signature.return_annotation == "None" else [f"returns {_code(str(signature.return_annotation))}"]),
    ]  # fmt: skip
    only = [
        f"Of `{values.argument_of(name)}` only `{rule.field}` may be changed."
        for name in values.HOOKS_RULES.get(hook.name, ())
        if not name.endswith(", kept")
        if " only " in name
        for rule in values.RULES[name]
    ]
    fixed = [
        f"{values.argument_of(name)}.{rule.field}"
        for name in values.HOOKS_RULES.get(hook.name, ())
        if not name.endswith(", kept")
        for rule in values.RULES[name]
        if rule.test is values.kept
    ]
    only += [f"To be set earlier, at `sender_fetch`: `{'`, `'.join(fixed)}`."] if fixed else []
    lines = [f"### {hook.name}", "", *_paragraphs(inspect.getdoc(declared)), *only, *([""] if only else [])]
    return "\n".join([*lines, f"- {'; '.join(given)}", f"- {'; '.join(facts)}", ""])


def _questions() -> Iterator[str]:
    said = remarks()
    for name, one in sorted(OFFERED.items()):
        takes = ", ".join(_parameter(each) for each in one.takes.parameters.values())
        answers = _plain(str(one.takes.return_annotation))
        what = ("Order. " if one in ORDERS else "") + said[one.declared.__name__]
        yield f"| `{name}` | {_code(_plain(takes))} | {_code(answers)} | {_cell(what)} |"


def _answers() -> Iterator[str]:
    """The kinds of answers, and what is in them."""
    yield from ("| answer | members |", "|---|---|")
    for name, kind in sorted(_typed(OFFERED.values()).items()):
        members = ", ".join(f"{member}: {_plain(str(text))}" for member, text in _members(kind).items())
        yield f"| `{name}` | {_code(members)} |"
    yield ""


def _members(kind: type) -> dict[str, str]:
    found = dict[str, str]()
    for base in reversed([*getattr(kind, "__orig_bases__", ()), kind]):
        if is_typeddict(base):
            found |= {
                name: getattr(text, "__forward_arg__", str(text))
                for name, text in inspect.get_annotations(base).items()
            }
    return found


def _typed(asked: Iterable[Question[..., Any]]) -> dict[str, type]:
    found, left = dict[str, type](), [get_type_hints(one.declared)["return"] for one in asked]
    while left:
        hint = left.pop()
        if is_typeddict(hint):
            if hint.__name__ not in found:
                found[hint.__name__] = hint
                left += get_type_hints(hint).values()
        elif get_origin(hint) is not None:
            left += get_args(hint)
    return found


def remarks() -> dict[str, str]:
    """Function of a question → what the comments at it say."""
    source = inspect.getsource(questions)
    lines, found = source.splitlines(), dict[str, str]()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
            above = list[str]()
            while lines[first - 1].startswith("# ") and not lines[first - 1].startswith("# --"):
                first -= 1
                above.insert(0, lines[first].removeprefix("# "))
            beside = [line.partition("  # ")[2] for line in lines[node.lineno - 1 : node.end_lineno]]
            words = [*above, *(one for one in beside if one and one != "fmt: skip")]
            found[node.name] = " ".join(re.sub(r" ?\(`[^`]*`\)", "", " ".join(words)).split())
    return found


def _plain(text: str) -> str:
    """An annotation without the marks that say nothing to a plugin."""
    found = _MARKED.sub(r"\1", text)
    return found if found == text else _plain(found)


def _parameter(one: inspect.Parameter) -> str:
    default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
    return f"{_STARS.get(one.kind, '')}{one.name}: {one.annotation}{default}"


def _verdicts() -> str:
    calls = [(f"{kind.__name__}({', '.join(_parameters(kind.__init__))})", kind) for kind in _VERDICTS]
    rows = [f"| {_code(call)} | {_cell(inspect.getdoc(kind) or '')} |" for call, kind in calls]
    return "\n".join(["| raise | what |", "|---|---|", *rows, ""])


def _kind(kind: type) -> str:
    lines = [f"### {kind.__name__}", "", *_paragraphs(introduction(kind))]
    rows = [
        f"| `{name}` | {_code(annotation)} | {_cell(says)} | {_cell(bounds)} |"
        for name, annotation, says, bounds in members(kind)
    ]
    if rows:
        lines += ["| field | type | what it is | may be set to |", "|---|---|---|---|", *rows, ""]
    methods = [f"| {_code(call)} | {_cell(says)} |" for call, says in _methods(kind)]
    if methods:
        lines += ["| method | what it does |", "|---|---|", *methods, ""]
    return "\n".join(lines)


def members(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, description and bounds of each field and property."""
    said, bounds = described(kind), _bounds(kind)
    if is_dataclass(kind):
        for one in fields(kind):
            if not one.name.startswith("_") and one.name not in INTERNAL:
                yield one.name, _default(one), said.get(one.name, ""), bounds.get(one.name, "")
    elif kind is Taking:
        yield from (
            (name, text.__forward_arg__, said.get(name, ""), "") for name, text in inspect.get_annotations(kind).items()
        )
    elif kind is not Headers:
        for name, annotation in _annotated(kind).items():
            yield name, annotation, said.get(name, ""), bounds.get(name, "")
    for name, value in vars(kind).items():
        if isinstance(value, property) and name not in INTERNAL and not name.startswith("_"):
            returns = str(inspect.signature(value.fget).return_annotation) if value.fget else ""
            yield name, returns, inspect.getdoc(value) or "", bounds.get(name, "")


def _annotated(kind: type) -> dict[str, str]:
    if kind is PluginApi:  # its own are set where it is made
        return {
            "name": "str", "zones": "frozenset[str]", "timeout_s": "float", "log": "logging.Logger",
            "store": "SharedStore", "admin": "PluginAdmin",
        }  # fmt: skip
    return {name: str(text) for name, text in inspect.get_annotations(kind).items()}


def _methods(kind: type) -> Iterator[tuple[str, str]]:
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        private = name.startswith("_") or name in INTERNAL or name in _INTERNAL_OF.get(kind, ())
        if inspect.isfunction(function) and not private:
            head = "await " if inspect.iscoroutinefunction(function) else ""
            head += f"{kind.__name__}." if isinstance(value, classmethod) else ""
            yield f"{head}{name}({', '.join(_parameters(function))})", inspect.getdoc(function) or ""


def _parameters(function: Any) -> Iterator[str]:
    for one in list(inspect.signature(function).parameters.values())[1:]:
        default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
        annotation = "" if one.annotation is inspect.Parameter.empty else f": {one.annotation}"
        yield f"{_STARS.get(one.kind, '')}{one.name}{annotation}{default}"


@cache
def described(kind: type) -> dict[str, str]:
    """Field → what its class's docstring says about it."""
    found = dict[str, str]()
    for names, text in _labelled(kind)[1]:
        for name in names:
            found.setdefault(name, text)
    return found


def introduction(kind: type) -> str:
    """What its docstring says before the first field."""
    return _labelled(kind)[0]


def _labelled(kind: type) -> tuple[str, list[tuple[list[str], str]]]:
    """`a, b: text. c: text` → the beginning, and each group of names with its text."""
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else list(_annotated(kind))
    names += [*_INTERNAL_OF.get(kind, ()), *(name for name, value in vars(kind).items() if isinstance(value, property))]
    known = "|".join(sorted((re.escape(name) for name in names), key=len, reverse=True)) or "(?!)"
    found, beginnings = list[tuple[list[str], str]](), list[str]()
    for part in (inspect.getdoc(kind) or "").split("\n\n"):
        text = " ".join(part.split())
        labels = list(re.finditer(rf"(?:^|(?<=[.;] ))((?:{known})(?:, (?:{known}))*)( \"\")?: ", text))
        ends = [*(label.start() for label in labels), len(text)]
        beginnings.append(text[: ends[0]].strip())
        for label, end in zip(labels, ends[1:], strict=True):
            said = text[label.end() : end].strip().removesuffix(";")
            found.append((label[1].split(", "), f'"": {said}' if label[2] else said))
    return "\n\n".join(filter(None, beginnings)), found


@cache
def _bounds(kind: type) -> dict[str, str]:
    """Field → what `values.RULES` want of it."""
    arguments = {
        one.name
        for hook in spec.HOOKS
        for one in inspect.signature(getattr(spec, hook)).parameters.values()
        if str(one.annotation) == kind.__name__
    }
    rules = [rule for name in sorted(arguments) for rule in values.RULES.get(name, ())]
    if kind is Recipient:
        rules = [rule for rule in values.RULES["address"] if rule.field in ("address", "notes")]
    fixed = [name for name, says in described(kind).items() if "not to be changed" in says]
    return {rule.field: rule.must.removeprefix("be ") for rule in rules if rule.field not in fixed}


def _default(one: Field[Any]) -> str:
    if one.default is None or isinstance(one.default, str | int | float | tuple):
        return f"{one.type} = {one.default!r}"
    return str(one.type)


def _paragraphs(text: str | None) -> list[str]:
    found = list[str]()
    for part in (text or "").split("\n\n"):
        if part.strip():
            found += [*textwrap.wrap(" ".join(part.split()), 120, break_long_words=False, break_on_hyphens=False), ""]
    return found


def _linked(annotation: str) -> str:
    known = {kind.__name__ for kind in KINDS}
    return f"[{annotation}](#{annotation.lower()})" if annotation in known else _code(annotation)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
