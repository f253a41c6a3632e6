"""Nothing is kept that nothing uses: vulture finds no more than what scripts/vulture_list.py accounts for."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path

import pytest
from vulture import Vulture
from vulture.config import make_config

TOP = Path(__file__).parents[1]
LIST = TOP / "scripts" / "vulture_list.py"


@pytest.fixture(scope="module")
def dead() -> dict[str, str]:
    """Name → place, as `python -m vulture` finds them at the top of the repository, but for what the list says."""
    with contextlib.chdir(TOP):
        settings = make_config([])
        paths = [path for path in settings["paths"] if Path(path).name != LIST.name]
        vulture = Vulture(ignore_names=settings["ignore_names"], ignore_decorators=settings["ignore_decorators"])
        vulture.scavenge(paths, exclude=settings["exclude"])
        found = vulture.get_unused_code(min_confidence=settings["min_confidence"])
        return {str(item.name): f"{item.filename}:{item.first_lineno}" for item in found}


def listed() -> set[str]:
    """A name in the list counts as used, wherever it is dead."""
    lines = [node.value for node in ast.parse(LIST.read_text("utf-8")).body if isinstance(node, ast.Expr)]
    return {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in lines} - {""}


def test_nothing_is_dead(dead: dict[str, str]) -> None:
    """Whoever adds to the list says there who uses it."""
    assert {name: place for name, place in dead.items() if name not in listed()} == {}


def test_the_list_has_nothing_that_is_used_anyway_or_gone(dead: dict[str, str]) -> None:
    """A reason does not outlive what it was for."""
    assert listed() - dead.keys() == set()
