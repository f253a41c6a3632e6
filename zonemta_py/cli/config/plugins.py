"""`zonemta plugin …`: which plugins there are, which is called when, whether they load, and how a new one begins."""

from __future__ import annotations

import keyword
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.config import plugin_trial
from zonemta_py.cli.config.plugin_child import Loaded, in_a_child
from zonemta_py.cli.terminal.errors import CommandError, Exit, from_os
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration, tabled
from zonemta_py.cli.terminal.output import Telling, print_json, print_table
from zonemta_py.config import Plugins
from zonemta_py.plugin import skeleton
from zonemta_py.plugin.catalogue import Plugin, hook_says, no_hooks, plugins
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host, PluginError
from zonemta_py.plugin.loading import suggestion
from zonemta_py.plugin.spec import HOOKS, Hook

app = typer.Typer(
    help="List, check, try and begin plugins.\n\ndocs/PLUGINS.md says how to write one; `zonemta route --plugins` "
    "shows where they send a recipient.",
    no_args_is_help=True,
)
app.command("run")(plugin_trial.run)


@app.command("list")
@tabled
def list_(config: ConfigFile = None, json: AsJson = False) -> None:
    """List the plugins that are enabled, in their order, and the others that could be."""
    found = plugins(configuration(config).plugins)
    if json:
        return print_json([one._asdict() for one in found])
    rows = [
        (one.name, one.place or "", ", ".join(one.hooks) or "none", one.fault or one.says, one.file) for one in found
    ]
    enabled = sum(one.place > 0 for one in found)
    print_table(
        f"Plugins: {enabled} enabled of {len(found)}", ("plugin", "order ", "hooks", "what it does", "file"), rows,
        order=("plugin", "order", "what it does", "hooks"),
    )  # fmt: skip
    return None


def _failing(hook: Hook) -> str:
    if hook.process == "events":
        return "comes again"
    return "451" if hook.failing == "raise" else "passes"


@app.command()
@tabled
def order(
    hook: Annotated[str, typer.Argument(metavar="HOOK", help="Only this hook.")] = "",
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Show the hooks in the order in which mail meets them, and which plugins are called at each, in their order."""
    if hook and hook not in HOOKS:
        raise _no_hook(hook)
    enabled = [one for one in plugins(configuration(config).plugins) if one.place]
    found = [
        {
            "hook": name, "process": one.process,
            "plugins": [plugin.name for plugin in enabled if name in plugin.hooks],
            "verdicts": [verdict.__name__ for verdict in one.verdicts],
            "failing": _failing(one), "runs": hook_says(name),
        }
        for name, one in HOOKS.items()
        if hook in ("", name)
    ]  # fmt: skip
    if json:
        return print_json(found)
    rows = [
        (
            row["hook"], row["process"],
            " > ".join(_at(one, row["hook"]) for one in enabled if row["hook"] in one.hooks) or "none",
            ", ".join(row["verdicts"]) or "nothing", row["failing"], row["runs"],
        )
        for row in found
    ]  # fmt: skip
    print_table(
        "Hooks, in the order in which mail meets them",
        ("hook", "process", "plugins", "may raise", "if it fails", "runs"), rows,
        order=("hook", "plugins", "process", "may raise", "if it fails"),
    )  # fmt: skip
    return None


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="PLUGIN", help="Names, or paths of files; default: all that are enabled."),
    ] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Load plugins as a start does, each with its options: hooks, arguments, options, setup."""
    settings = configuration(config)
    wanted = files or settings.plugins.enabled
    if not wanted:
        raise CommandError(Exit.USAGE, "no plugin is enabled; name one, or the path of its file")
    hints = dict[str, str]()
    good, wrong, known = dict[str, list[str]](), list[str](), {one.name: one for one in plugins(settings.plugins)}
    for one in wanted:
        name = settings.plugins.instance(one).name
        options = {name: settings.plugins.options[name]} if name in settings.plugins.options else {}
        alone = settings.plugins.model_copy(
            update={"enabled": [one], "options": _with_folder(settings.plugins, options)}
        )
        hooks, sentence, hint = in_a_child(partial(_loaded, alone, Configured.of(settings)), name)
        if hint:
            hints[name] = hint
        if sentence:
            wrong.append(sentence)
        else:
            good[name] = hooks
    with Telling(json) as tell:
        tell(good=good, problems=wrong, hints=hints)
        for name, hooks in good.items():
            called = [_at(known[name], hook, hook) if name in known else hook for hook in hooks]
            tell(f"plugin {name}: good; hooks: {', '.join(called) or 'none'}")
            if name in hints:
                tell(f"plugin {name}: {hints[name]}")
        for sentence in wrong:
            tell(sentence)
    if wrong:
        raise CommandError(Exit.PROBLEMS, f"{len(wrong)} of {len(wanted)} plugins cannot be loaded")


def _loaded(of: Plugins, configured: Configured) -> Loaded:
    try:
        host = Host.load(of, configured)
    except PluginError as error:
        return [], str(error), ""
    hooks = [hook for hook in HOOKS if host.listens(hook)]
    idle = not (hooks or host.commands or host.routes)
    return hooks, "", next(map(no_hooks, host.files), "") if idle else ""


def _at(one: Plugin, hook: str, called: str = "") -> str:
    """A plugin's name, or what it is `called`, and where its hook is called if that is not everywhere."""
    where = one.where(hook)
    return f"{called or one.name} ({where})" if where else called or one.name


def _with_folder(of: Plugins, options: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    """The options of one plugin, which know as all do from where relative paths go."""
    tables = type(of.options)(options)
    if hasattr(of.options, "folder"):
        tables.folder = of.options.folder  # type: ignore[attr-defined]
    return tables


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the plugin: small letters, digits, underscores.")],
    hooks: Annotated[
        list[str] | None, typer.Option("--hook", metavar="HOOK", help="A hook that it begins with; may be repeated.")
    ] = None,
    folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Where its files are written.")] = Path(),
    json: AsJson = False,
) -> None:
    """Write NAME.py with the hooks you name (queue_route by default), and test_NAME.py, which pytest runs."""
    if not skeleton.NAME.fullmatch(name):
        raise CommandError(Exit.USAGE, f"{name!r} is not a name for a plugin; use small letters, digits, underscores")
    if name in sys.stdlib_module_names or keyword.iskeyword(name):
        raise CommandError(
            Exit.USAGE, f"{name!r} is a name of Python's own, which its test could not use; give another"
        )
    chosen = list(dict.fromkeys(hooks or ["queue_route"]))
    for hook in chosen:
        if hook not in HOOKS:
            raise _no_hook(hook)
    written = [folder / f"{name}.py", folder / f"test_{name}.py"]
    for path, text in zip(written, (skeleton.plugin(name, chosen), skeleton.test(name, chosen)), strict=True):
        try:
            with path.open("x") as file:
                file.write(text)
        except FileExistsError:
            raise CommandError(Exit.CANT_CREATE, f"{path} exists; choose another name or folder") from None
        except OSError as error:
            raise from_os(error) from None
    with Telling(json) as tell:
        tell(f"{written[0]} and {written[1]} are written", files=[str(path) for path in written])
        tell(f'Try it with `pytest {written[1]}`; `enabled = ["{written[0].absolute()}"]` in [plugins] enables it')


def _no_hook(name: str) -> CommandError:
    return CommandError(
        Exit.USAGE, f"there is no hook {name!r}{suggestion(name, HOOKS)}; `zonemta plugin order` lists them all"
    )
