"""Finding a plugin and importing it: a bundled name, a file, a folder, or an entry point of `zonemta.plugins`.

Every failure, even sys.exit() while importing, is a PluginError: one sentence naming plugin, file and line.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import zonemta_py
from zonemta_py.config import ConfigError
from zonemta_py.plugin import watchdog
from zonemta_py.plugin.calls import line_in

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "zonemta.plugins"
_HERE = Path(zonemta_py.__file__).resolve().parent
BUNDLED = next((here for here in (_HERE / "plugins",) if here.is_dir()), _HERE.parent / "plugins")
"""As it is installed; in a checkout beside the package."""


class PluginError(ConfigError):
    """A plugin that cannot run: found while loading, before any mail is touched."""

    def __init__(self, plugin: str, file: str, line: int, sentence: str) -> None:
        place = f", {file}:{line}" if file and line else f", {file}" if file else ""
        super().__init__(f"plugin {plugin}{place}: {sentence}")
        self.plugin, self.file, self.line = plugin, file, line


@dataclass(frozen=True, slots=True)
class PluginSource:
    """A plugin that was imported. file: where its code is."""

    name: str
    file: str
    module: ModuleType


def find(wanted: str, folder: Path | None, name: str = "") -> PluginSource:
    """wanted: an entry of `enabled`; folder: searched before the bundled plugins; name: of an instance of it, which
    has modules of its own. Raises PluginError."""
    if "/" in wanted or wanted.endswith(".py"):
        own, named = named_file(wanted, folder)
        return _from_file(name or own, named)
    for place in (folder.expanduser(), BUNDLED) if folder else (BUNDLED,):
        file = code_of(place / wanted)
        if wanted != "__init__" and file is not None:
            return _from_file(name or wanted, file)
    found = [entry for entry in entry_points() if entry.name == wanted]
    if len(found) > 1:
        packages = " and ".join(sorted({entry.value for entry in found}))
        raise PluginError(
            wanted, "", 0, f"is offered by {packages}; uninstall one, or enable it by the path of its file"
        )
    if not found:
        raise PluginError(wanted, "", 0, _not_found(wanted, folder))
    return _from_entry_point(found[0], name or wanted)


def code_of(place: Path) -> Path | None:
    """The file of a plugin of that name: NAME.py, or __init__.py of the folder NAME. None: there is none."""
    files = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def names_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Plugins of a folder, and their files."""
    found = {file.stem: file for file in folder.glob("*.py") if file.stem != "__init__"}
    found |= {file.parent.name: file for file in folder.glob("*/__init__.py") if file.parent.name not in found}
    return iter(sorted(found.items()))


def digest(file: str) -> str:
    """Of a plugin's code: of its file, or of all modules of its package. "" where it cannot be read."""
    path = Path(file)
    found = hashlib.sha256()
    try:
        for one in sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]:
            found.update(hashlib.sha256(one.read_bytes()).digest())
    except OSError:
        return ""
    return found.hexdigest()


def suggestion(word: str, known: Iterable[str]) -> str:
    """ ", did you mean 'x'?" or ""."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def named_file(wanted: str, folder: Path | None) -> tuple[str, Path]:
    """Name and file of an entry of `enabled` that is a path, of a file or of a folder with __init__.py. Raises
    PluginError."""
    file = Path(wanted).expanduser()
    if folder and not file.is_absolute() and not file.exists():
        file = folder.expanduser() / file
    if (file / "__init__.py").is_file():
        return file.name, (file / "__init__.py").resolve()
    if file.is_dir():
        sentence = "has no __init__.py, which a folder needs to be a plugin; write one, or name a file of it"
        raise PluginError(file.name, str(file), 0, sentence)
    if not file.is_file():
        raise PluginError(file.stem, str(file), 0, "there is no such file; correct the path in plugins.enabled")
    return file.stem, file.resolve()


def _not_found(wanted: str, folder: Path | None) -> str:
    places = [place for place in (folder.expanduser() if folder else None, BUNDLED) if place]
    names = {name for place in places for name, _ in names_in(place)}
    names |= {entry.name for entry in entry_points()}
    known = ", ".join(sorted(names)) or "none"
    remedy = "give one of these or the path of a file in plugins.enabled"
    return f"is not installed{suggestion(wanted, names)} (there are: {known}); {remedy}"


def _from_file(name: str, file: Path, parent: str = "") -> PluginSource:
    """Executes the file afresh, so that two hosts in one process, and two instances in one host, share no state.
    parent: the package that it is in, from which its relative imports go."""
    file = file.absolute()  # as in its tracebacks, which is how line numbers are found
    module_name = f"{parent}{'.' if parent else ''}zonemta_plugin_{name}"
    package = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(module_name, file, submodule_search_locations=package)
    if spec is None or spec.loader is None:
        raise PluginError(name, str(file), 0, "is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    for loaded in [one for one in sys.modules if one.startswith(f"{module_name}.")]:
        del sys.modules[loaded]  # those of an earlier host's package
    sys.modules[module_name] = module  # dataclasses and pydantic look their own module up while it is being executed
    try:
        with watchdog.loading(name, str(file), "importing it"):
            spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(module_name, None)
        raise _import_failure(name, str(file), error) from error
    return PluginSource(name, str(file), module)


def entry_points() -> Iterable[EntryPoint]:
    """Of installed packages that offer plugins."""
    from importlib import metadata  # here: a start without such plugins need not load it

    return metadata.entry_points(group=ENTRY_POINTS)


def _from_entry_point(entry: EntryPoint, name: str) -> PluginSource:
    """name: another than the entry's is an instance."""
    try:
        with watchdog.loading(entry.name, entry.value, "importing it"):
            module = entry.load()
    except BaseException as error:
        raise _import_failure(entry.name, entry.value, error) from error
    if not isinstance(module, ModuleType):
        sentence = f"its entry point {entry.value} is a {type(module).__name__}; it must name a module"
        raise PluginError(entry.name, "", 0, sentence)
    if name != entry.name and module.__file__ is not None:
        file = Path(module.__file__)
        return _from_file(name, file, "" if file.name == "__init__.py" else module.__name__.rpartition(".")[0])
    return PluginSource(name, str(module.__file__ or entry.value), module)


def _import_failure(name: str, file: str, error: BaseException) -> BaseException:
    if isinstance(error, KeyboardInterrupt):
        return error
    if isinstance(error, SyntaxError):
        where = error.filename or file
        return PluginError(name, where, error.lineno or 0, f"is not valid Python ({error.msg}); correct that line")
    line = line_in(file, error)
    if isinstance(error, ModuleNotFoundError):
        remedy = "install it into the environment zonemta runs in"
        return PluginError(name, file, line, f"needs the module {error.name!r}, which is not installed; {remedy}")
    sentence = (
        f"importing it raised {type(error).__name__} ({error}); correct the plugin, or remove it from plugins.enabled"
    )
    return PluginError(name, file, line, sentence)
