"""What plugins there are, and what each has, read from their source without running it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from zonemta_py.config import Plugins
from zonemta_py.plugin import spec
from zonemta_py.plugin.loading import BUNDLED, PluginError, entry_points, named_file, names_in
from zonemta_py.plugin.spec import HOOKS


class Plugin(NamedTuple):
    """A plugin that can be enabled. place: 1 for the first of `plugins.enabled`, 0: not enabled. file: "" if it is not
    known without importing its package. says: the first sentence of its docstring. hooks: in the order in which mail
    meets them. fault: why its source cannot be read, or where a plugin that is enabled is lacking; "" none. listeners,
    zones, failing: as of its [[plugins.instances]]."""

    name: str
    place: int
    file: str
    says: str
    hooks: tuple[str, ...]
    fault: str = ""
    listeners: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    failing: str = "closed"

    def where(self, hook: str) -> str:
        """ "": everywhere; else where the hook is called, and whether mail goes on when it fails."""
        places = {"receiver": self.listeners, "queue": self.zones, "sender": self.zones}.get(HOOKS[hook].process, ())
        opens = self.failing == "open" and HOOKS[hook].failing == "raise"
        return "; ".join(one for one in (", ".join(places), "open" if opens else "") if one)


def plugins(of: Plugins) -> list[Plugin]:
    """Those that are enabled in their order, then the others by name."""
    found = {name: (name, file) for name, file in _available(of)}
    enabled, asked = list[Plugin](), set[str]()
    for place, entry in enumerate(of.enabled, 1):
        instance = of.instance(entry)
        name, wanted = instance.name, instance.plugin
        asked.add(wanted)
        if "/" in wanted or wanted.endswith(".py"):
            try:
                _, path = named_file(wanted, of.folder)
            except PluginError as error:
                one = Plugin(name, place, error.file, "", (), "there is no such file")
            else:
                one = _read(name, str(path), place)
        else:
            one = _read(name, found.get(wanted, ("", ""))[1], place)
        listeners, zones = tuple(instance.listeners), tuple(instance.zones)
        enabled.append(one._replace(listeners=listeners, zones=zones, failing=instance.failing))
    files = {str(Path(one.file).resolve()) for one in enabled if one.file}
    found = {name: one for name, one in found.items() if name not in asked}
    others = [(name, file) for name, file in sorted(found.values()) if str(Path(file).resolve()) not in files]
    return [*enabled, *(_read(name, file, 0) for name, file in others)]


def _available(of: Plugins) -> Iterator[tuple[str, str]]:
    """Names and files; of one name the last one counts."""
    for entry in entry_points():
        yield entry.name, _origin(entry.value)
    for folder in (BUNDLED, of.folder.expanduser()) if of.folder else (BUNDLED,):
        yield from ((name, str(file)) for name, file in names_in(folder) if not name.startswith("test_"))


def _origin(module: str) -> str:
    try:
        found = find_spec(module.partition(":")[0])
    except (ImportError, ValueError):
        return ""
    return found.origin or "" if found is not None else ""


def _read(name: str, file: str, place: int) -> Plugin:
    if not file:
        return Plugin(name, place, "", "", (), "there is no such plugin" if place else "its package cannot be found")
    try:
        tree = ast.parse(Path(file).read_bytes(), file)
    except OSError as error:
        return Plugin(name, place, file, "", (), (error.strerror or "it cannot be read").lower())
    except (SyntaxError, ValueError) as error:
        return Plugin(name, place, file, "", (), f"it is not valid Python: {error}")
    has = {one.name for one in tree.body if isinstance(one, ast.AsyncFunctionDef)}
    has |= {name.asname or name.name for one in tree.body if isinstance(one, ast.ImportFrom) for name in one.names}
    says = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    return Plugin(name, place, file, says, tuple(hook for hook in HOOKS if hook in has))


def hook_says(name: str) -> str:
    """The first sentence about a hook: when it runs, and what it may do."""
    text = " ".join((inspect.getdoc(getattr(spec, name)) or "").split())
    return text.partition(". ")[0].rstrip(".")


def no_hooks(file: str) -> str:
    """What to do about a plugin's file that has none: of functions with a hook's name in a class, where they belong."""
    try:
        tree = ast.parse(Path(file).read_bytes(), file)
    except (OSError, SyntaxError, ValueError):
        return ""
    for one in (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)):
        for function in one.body:
            if isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef) and function.name in HOOKS:
                arguments = ", ".join(HOOKS[function.name].arguments)
                return (
                    f"{file}:{function.lineno}: {function.name} in class {one.name} is no hook, so it is never called; "
                    f"define it at the top of the file, as `async def {function.name}({arguments})`"
                )
    arguments = ", ".join(HOOKS["queue_route"].arguments)
    example = f"`async def queue_route({arguments})`"
    return f"it has no hooks; define them at the top of the file, as {example} (`zonemta plugin order` lists them)"
