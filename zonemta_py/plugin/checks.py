"""Checks of a plugin before it may run: its hooks, their arguments, its options, its `setup`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from zonemta_py.config import PluginInstance
from zonemta_py.config.secret import in_place
from zonemta_py.plugin import watchdog
from zonemta_py.plugin.api import PluginApi
from zonemta_py.plugin.calls import line_in
from zonemta_py.plugin.loading import PluginError, PluginSource, suggestion
from zonemta_py.plugin.spec import HOOKS, Hook

_LEAVE_OUT = "leave that out of its [[plugins.instances]]"


def hooks(source: PluginSource) -> dict[str, Callable[..., Any]]:
    """Hook name → the plugin's function. Raises PluginError for the first fault."""
    found = {}
    for name, value in vars(source.module).items():
        if name in HOOKS:
            _check_hook(source, HOOKS[name], value)
            found[name] = value
        elif name != "setup" and _looks_like_hook(source, name, value):
            known = suggestion(name, HOOKS) or "; `zonemta plugin order` lists them."
            sentence = f"there is no hook {name!r}{known} A helper's name begins with _"
            raise PluginError(source.name, source.file, _line(value), sentence)
    return found


def limits(source: PluginSource, instance: PluginInstance, found: Iterable[str]) -> None:
    """Whether what [[plugins.instances]] says of it can ever apply. found: names of its hooks. Raises PluginError."""
    places = {HOOKS[name].process for name in found}
    has = f"it has {', '.join(found) or 'no hooks'}"
    if instance.listeners and "receiver" not in places:
        sentence = f"listeners would never apply, as no hook of it is called at a listener ({has})"
        raise PluginError(source.name, source.file, 0, f"{sentence}; {_LEAVE_OUT}")
    if instance.zones and not places & {"queue", "sender"}:
        sentence = f"zones would never apply, as no hook of it is called for recipients in a zone ({has})"
        raise PluginError(source.name, source.file, 0, f"{sentence}; {_LEAVE_OUT}")


def options(source: PluginSource, given: dict[str, Any], here: Path | None = None) -> BaseModel | None:
    """The plugin's `Options`, filled in and checked; None if it declares none. here: the folder of the file that they
    are in, from which relative paths (options of type Path) go. Raises PluginError."""
    model = getattr(source.module, "Options", None)
    if model is None:
        if given:
            raise PluginError(source.name, source.file, 0, f"takes no options; remove {_table(source)}")
        return None
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        raise PluginError(source.name, source.file, 0, "its Options must be a class Options(BaseModel), from pydantic")
    line = _line(model)
    _check_keys(source, model, given, line)
    try:
        chosen = model.model_validate(given)
        return chosen.model_copy(update=_from(here, chosen)) if here is not None else chosen
    except ValidationError as error:
        raise PluginError(source.name, source.file, line, _option_sentence(source, error)) from None


def _from(here: Path, chosen: BaseModel) -> dict[str, Path]:
    """Options that are relative paths, as they are meant."""
    values = ((name, getattr(chosen, name)) for name in type(chosen).model_fields)
    return {name: here / value for name, value in values if isinstance(value, Path) and str(value)[:1] not in "~/"}


def set_up(source: PluginSource, api: PluginApi, chosen: BaseModel | None) -> None:
    """Calls `setup(api, options)` if there is one. Raises PluginError."""
    setup = getattr(source.module, "setup", None)
    if setup is None:
        return
    if not inspect.isfunction(setup) or inspect.iscoroutinefunction(setup):
        raise PluginError(source.name, source.file, _line(setup), "setup must be a plain def; nothing can await it yet")
    arguments = {"api": api, "options": chosen}
    for name in inspect.signature(setup).parameters:
        if name not in arguments:
            sentence = f"setup takes {name!r}; its arguments are api and options"
            raise PluginError(source.name, source.file, _line(setup), sentence)
    given = {name: arguments[name] for name in inspect.signature(setup).parameters}
    try:
        with watchdog.loading(source.name, source.file, "setup"):
            returned = setup(**given)
    except (Exception, SystemExit) as error:
        sentence = f"setup raised {type(error).__name__} ({error}); correct {_table(source)} or the plugin"
        raise PluginError(source.name, source.file, line_in(source.file, error) or _line(setup), sentence) from error
    if returned is not None:
        sentence = f"setup returned {type(returned).__name__}; it must return nothing"
        raise PluginError(source.name, source.file, _line(setup), sentence)


def _looks_like_hook(source: PluginSource, name: str, value: Any) -> bool:
    waits = inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value)
    return waits and not name.startswith("_") and getattr(value, "__module__", "") == source.module.__name__


def _check_hook(source: PluginSource, hook: Hook, value: Any) -> None:
    generator = hook.name == "message_rewrite" and inspect.isasyncgenfunction(value)
    if not inspect.iscoroutinefunction(value) and not generator:
        raise PluginError(source.name, source.file, _line(value), f"{hook.name} is a hook; define it with async def")
    for parameter in inspect.signature(value).parameters.values():
        sentence = _argument_problem(hook, parameter)
        if sentence:
            raise PluginError(source.name, source.file, _line(value), f"{hook.name} {sentence}")


def _argument_problem(hook: Hook, parameter: inspect.Parameter) -> str:
    if parameter.kind is parameter.VAR_KEYWORD:
        return ""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
        return f"takes {parameter.name!r} by position, but arguments are passed by name; remove the * or /"
    if parameter.name not in hook.arguments:
        offered = ", ".join(hook.arguments)
        known = suggestion(parameter.name, hook.arguments) or "."
        return f"takes an unknown argument {parameter.name!r}{known} The hook offers: {offered}"
    return ""


def _check_keys(source: PluginSource, model: type[BaseModel], given: dict[str, Any], line: int) -> None:
    """pydantic ignores unknown keys by default; a misspelt option must be reported."""
    if "extra" in model.model_config:
        return
    known = {name for key, field in model.model_fields.items() for name in (key, field.alias) if name}
    for key in given:
        if key not in known:
            offered = ", ".join(sorted(known)) or "none"
            sentence = (
                f"has no option {key!r}{suggestion(key, known) or '.'} Options: {offered}; correct {_table(source)}"
            )
            raise PluginError(source.name, source.file, line, sentence)


def _option_sentence(source: PluginSource, error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "the table"
    message = first["msg"].removeprefix("Value error, ")
    got = "" if first["type"] == "missing" else f"; got {str(in_place(first['loc'], first['input'], True))[:60]!r}"
    return f"option {key}: {message}{got}; correct it in {_table(source)}"


def _table(source: PluginSource) -> str:
    return f"[plugins.options.{source.name}]"


def _line(value: Any) -> int:
    code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
    if code is not None:
        return int(code.co_firstlineno)
    try:
        return inspect.getsourcelines(value)[1]
    except (OSError, TypeError):
        return 0
