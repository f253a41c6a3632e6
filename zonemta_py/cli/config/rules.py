"""`zonemta rules …`: checks the rules about replies, shows which one matches a reply, and lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration, tabled
from zonemta_py.cli.terminal.output import print_json, print_table
from zonemta_py.config import Config, ConfigError
from zonemta_py.config.shipped import shipped
from zonemta_py.mail.rules.check import overridden, problems
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.mail.rules.rule import STAGES, Action, Rule, reply_of
from zonemta_py.mail.rules.rules import Rules, RulesError
from zonemta_py.zones.site import Providers

app = typer.Typer(help="Check, explain and list the rules that classify replies.", no_args_is_help=True)

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]…", help="Rule files, in order of precedence; default: those in force."),
]
Class = Annotated[str, typer.Option("--class", metavar="NAME", help="Only rules of this class.")]
Stage = Annotated[
    str, typer.Option(help="Stage of the reply: connect, banner, ehlo, tls, auth, mail, rcpt, data, dot.")
]
Provider = Annotated[str, typer.Option(help="Provider, by its name in providers.toml.")]


@app.command()
def check(files: Files = None, config: ConfigFile = None) -> None:
    """Run every example, find rules that never match or are shadowed, and count the rules of each class."""
    settings = configuration(config)
    rules = _load(files or in_force(settings))
    found = problems(rules, _providers(settings))
    for sentence in found:
        print(sentence)
    if found:
        raise CommandError(
            Exit.PROBLEMS, f"{len(found)} problem{'s' if len(found) > 1 else ''} in {len(rules.rules)} rules"
        )
    for rule, claim in overridden(rules):
        print(f"{rule.file}: rule {rule.name!r} gives way to {claim.name!r} of {claim.file}")
    counts = Counter(rule.kind for rule in rules.rules)
    examples = sum(len(rule.examples) for rule in rules.rules)
    rows = [(kind, counts[kind], meaning) for kind, meaning in CLASSES.items() if counts[kind]]
    print_table("Rules of each class", ("class", "rules ", "meaning"), rows)
    print(f"{len(rules.rules)} rules, {examples} examples: all good")


@app.command()
def explain(
    reply: Annotated[str, typer.Argument(metavar="REPLY", help='Such as "550 5.1.1 No such user".')],
    stage: Stage = "rcpt",
    provider: Provider = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show which rule matches a reply, what it does, and which other rules would match too."""
    if stage not in STAGES:
        raise CommandError(Exit.USAGE, f"there is no stage {stage!r}; use one of {', '.join(STAGES)}")
    settings = configuration(config)
    if provider and provider not in (known := _providers(settings)):
        raise CommandError(Exit.USAGE, f"there is no provider {provider!a}; use one of {', '.join(sorted(known))}")
    rules = _load(in_force(settings))
    try:
        matching = rules.matching(reply_of(reply), stage, provider)
    except ValueError as error:
        raise CommandError(Exit.DATA, str(error)) from None
    if as_json:
        print_json([_row(rule) for rule in matching])
    elif matching:
        _show(matching[0], matching[1:])
    else:
        print(f"No rule matches; class: undefined ({CLASSES['undefined']})")


@app.command("list")
@tabled
def list_(kind: Class = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the rules in force, in the order they are asked."""
    if kind and kind not in CLASSES:
        raise CommandError(Exit.USAGE, f"there is no class {kind!r}; use one of {', '.join(CLASSES)}")
    rules = [rule for rule in _load(in_force(configuration(config))).rules if kind in ("", rule.kind)]
    if as_json:
        print_json([_row(rule) for rule in rules])
        return
    rows = ((rule.name, rule.kind, conditions(rule), effects(rule.action), Path(rule.file).name) for rule in rules)
    print_table(
        f"{len(rules)} rules", ("rule", "class", "asks for", "action", "file"), rows, order=("rule", "class", "action")
    )


def in_force(config: Config) -> list[Path]:
    """The files with the rules, the one that is asked first at the front."""
    files = [config.rules.file or shipped("rules.toml")]
    return [config.rules.extra, *files] if config.rules.extra else files


def _providers(config: Config) -> list[str]:
    return Providers.load(config.dns.providers or shipped("providers.toml")).names


def effects(action: Action) -> str:
    """What differs from doing nothing, such as "verdict retry, rest 1800 s, from 3 in 300 s"."""
    does = []
    for field in fields(action):
        value = getattr(action, field.name)
        if value == field.default or field.name in ("after", "within_s"):
            continue
        if field.name == "suspend_s":
            does.append(f"for {value:g} s")
        elif field.name.endswith("_s"):
            does.append(f"{field.name[:-2]} {value:g} s")
        else:
            does.append(field.name.replace("_", " ") if value is True else f"{field.name} {value}")
    if action.after > 1:
        does.append(f"from {action.after} in {action.within_s:g} s")
    return ", ".join(does)


def conditions(rule: Rule) -> str:
    """What a rule asks of a reply, as in its file."""
    asks = [f"/{rule.pattern}/"] if rule.pattern else []
    asks += [f"code {_codes(rule.codes)}"] if rule.codes else []
    asks += [f"enhanced {', '.join(rule.enhanced)}"] if rule.enhanced else []
    asks += [f"stage {', '.join(sorted(rule.stages))}"] if rule.stages else []
    asks += [f"provider {', '.join(sorted(rule.providers))}"] if rule.providers else []
    return "; ".join(asks) or "nothing: any reply"


def _codes(codes: Iterable[int]) -> str:
    """Whole classes as 4xx."""
    left = set(codes)
    names = []
    for first in (2, 4, 5):
        whole = set(range(first * 100, first * 100 + 100))
        if whole <= left:
            names.append(f"{first}xx")
            left -= whole
    return ", ".join(names + [str(code) for code in sorted(left)])


def _show(rule: Rule, others: list[Rule]) -> None:
    rows = [
        ("rule", rule.name),
        ("class", f"{rule.kind}: {CLASSES[rule.kind]}"),
        ("action", effects(rule.action) or "by the code: 5xx bounces, everything else is tried again"),
        ("asks for", conditions(rule)),
        ("file", rule.file),
        *(("also", f"{other.name} ({other.kind})") for other in others),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def _row(rule: Rule) -> dict[str, object]:
    given = {f.name: getattr(rule.action, f.name) for f in fields(rule.action)}
    changed = {f.name: given[f.name] for f in fields(rule.action) if given[f.name] != f.default}
    asks = conditions(rule)
    return {"rule": rule.name, "class": rule.kind, "asks": asks, "action": changed, "file": rule.file}


def _load(files: list[Path]) -> Rules:
    try:
        return Rules.load(files)
    except RulesError as error:
        raise ConfigError(str(error)) from None
