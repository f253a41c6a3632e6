"""The house as a stranger meets it: few floors, one meaning a name, and no way that leads back to its start."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path

TOP = Path(__file__).parents[1]
FLOORS_MOST = 8


@cache
def modules() -> dict[str, ast.Module]:
    """By their dotted names."""
    found = {}
    for path in [path for top in ("zonemta_py", "plugins") for path in (TOP / top).rglob("*.py")]:
        name = ".".join(path.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules of ours that it names in imports: in functions, and for the type checker, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from [one for one in (inner, node.module) if one in modules()][:1]


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each is reached from each other."""

    def reached(start: str) -> frozenset[str]:
        seen, open_ = set[str](), [start]
        while open_:
            for other in graph.get(open_.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    open_.append(other)
        return frozenset(seen)

    far = {name: reached(name) for name in graph}
    groups = {frozenset(other for other in far[name] if name in far.get(other, ())) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def test_the_queue_has_few_floors() -> None:
    """Packages, one above the other (import-linter holds them apart); and modules within each of them."""
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors,) = [one["layers"] for one in contracts if one.get("containers") == ["zonemta_py.queue"]]
    assert len(floors) <= FLOORS_MOST
    for room in [path.name for path in (TOP / "zonemta_py" / "queue").iterdir() if (path / "__init__.py").exists()]:
        inside = {name: tree for name, tree in modules().items() if name.startswith(f"zonemta_py.queue.{room}.")}
        graph = {name: {other for other in imported(tree) if other in inside} - {name} for name, tree in inside.items()}
        assert max(map(partial(height, graph), graph)) <= FLOORS_MOST


def height(graph: Mapping[str, set[str]], name: str) -> int:
    """Modules of the longest way down from one, itself counted."""
    return 1 + max((height(graph, below) for below in graph[name]), default=0)


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]


def test_no_module_leads_back_to_itself() -> None:
    """Not in functions either, nor for the type checker: whoever reads a module has read all that it needs."""
    graph = {name: set(imported(tree)) - {name} for name, tree in modules().items()}
    assert circles(graph) == []


def test_no_class_name_means_two_things() -> None:
    """What is seen outside its module is named so that nothing else is called that."""
    seen = set[tuple[str, str]]()
    for tree in modules().values():
        heads = dict[str, str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                seen |= {(node.module, alias.name) for alias in node.names}
                heads |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in heads:
                seen.add((heads[node.value.id], node.attr))
    places = defaultdict[str, set[str]](set)
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (name, node.name) in seen:
                places[node.name].add(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
