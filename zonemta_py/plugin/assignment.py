"""Where a plugin's function sets a field of an argument, read from its source once it has been set to what is wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path


def line(file: str, first: int, argument: str, field: str) -> int:
    """The one line that assigns to ARGUMENT.FIELD, or to what is in it, in the function whose code begins at line
    `first`; 0 if there are several, or none."""
    try:
        return _line(file, Path(file).stat().st_mtime_ns, first, argument, field)
    except (OSError, SyntaxError, ValueError):
        return 0


@lru_cache(128)
def _line(file: str, _: int, first: int, argument: str, field: str) -> int:
    tree = ast.parse(Path(file).read_bytes(), file)
    found = {
        target.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef)
        and min([node.lineno, *(one.lineno for one in node.decorator_list)]) == first
        for inner in ast.walk(node)
        for target in _targets(inner)
        if any(_is(part, argument, field) for part in ast.walk(target))
    }
    return found.pop() if len(found) == 1 else 0


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        yield from node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target


def _is(node: ast.AST, argument: str, field: str) -> bool:
    whose = node.value if isinstance(node, ast.Attribute) and node.attr == field else None
    return isinstance(whose, ast.Name) and whose.id == argument
