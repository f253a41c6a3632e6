"""Nothing is kept that nothing uses: vulture finds no more than what scripts/vulture_list.py accounts for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from vulture import Vulture
from vulture.config import make_config

TOP = Path(__file__).parents[1]
LIST = TOP / "scripts" / "vulture_list.py"


def dead(monkeypatch: pytest.MonkeyPatch, *, listed: bool) -> dict[str, str]:
    """Name → place, as `python -m vulture` finds them at the top of the repository."""
    monkeypatch.chdir(TOP)
    settings = make_config([])
    paths = [path for path in settings["paths"] if listed or Path(path).name != LIST.name]
    vulture = Vulture(ignore_names=settings["ignore_names"], ignore_decorators=settings["ignore_decorators"])
    vulture.scavenge(paths, exclude=settings["exclude"])
    found = vulture.get_unused_code(min_confidence=settings["min_confidence"])
    return {str(item.name): f"{item.filename}:{item.first_lineno}" for item in found}


def test_nothing_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds to the list says there who uses it."""
    assert dead(monkeypatch, listed=True) == {}


def test_the_list_has_nothing_that_is_used_anyway_or_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason does not outlive what it was for."""
    lines = [node.value for node in ast.parse(LIST.read_text("utf-8")).body if isinstance(node, ast.Expr)]
    names = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in lines} - {""}
    assert names - dead(monkeypatch, listed=False).keys() == set()
