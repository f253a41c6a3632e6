"""The rest of the house calls hooks as they are declared: checked in the source, where no test may come by."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import zonemta_py
from zonemta_py.plugin.spec import HOOKS

HOUSE = Path(zonemta_py.__file__).parent


def _calls() -> Iterator[tuple[str, ast.Call, str]]:
    """Each call of `.listens("…")`, `.call("…", …)`, `.call_now("…", …)`, with its place."""
    for file in HOUSE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant) and _about_hooks(node.func):
                    yield str(name.value), node, f"{file}:{node.lineno}"


def _about_hooks(function: ast.Attribute) -> bool:
    owner = ast.unparse(function.value)
    return function.attr in ("listens", "call", "call_now") and ("host" in owner or "plugin" in owner)


def test_hooks_are_called_by_their_names_and_arguments() -> None:
    """An unknown hook would never be heard, and a wrong argument would be blamed on a plugin."""
    calls = list(_calls())
    assert len({name for name, _, _ in calls}) > len(HOOKS) / 2, "those of streams are called otherwise"
    for name, call, place in calls:
        assert name in HOOKS, f"{place}: there is no hook {name!r}"
        function = call.func
        assert isinstance(function, ast.Attribute)
        keywords = {keyword.arg for keyword in call.keywords}
        if function.attr != "listens" and None not in keywords:
            assert keywords == HOOKS[name].offered, f"{place}: {name} takes {', '.join(HOOKS[name].arguments)}"
            assert HOOKS[name].waits == (function.attr == "call"), f"{place}: {name} is for the other kind of call"
