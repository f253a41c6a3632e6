"""`zonemta rules …`: checks the rules about replies, shows which one matches a reply, and lists them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, configuration, tabled
from zonemta_py.cli.terminal.output import print_json, print_table
from zonemta_py.config import Config, ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.mail.rules.check import contradictions, overridden, problems
from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.mail.rules.rule import OTHER_NAMES, STAGES, reply_of
from zonemta_py.mail.rules.rules import Rules, RulesError, conditions, effects, rule_row
from zonemta_py.queue.suppression.explain_reply import ExplainedReply, explained
from zonemta_py.zones.site import Providers

app = typer.Typer(
    help="Check, explain and list the rules that classify replies.\n\nYour own rules go in a file of [[rules]] tables "
    "(name, class, pattern, examples), which is set in [rules] extra. `zonemta log --class undefined` shows replies "
    "that matched no rule.",
    no_args_is_help=True,
)

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE", help="Rule files, in order of precedence; default: those in use."),
]
Class = Annotated[str, typer.Option("--class", metavar="NAME", help="Only rules of this class.")]
Stage = Annotated[
    str, typer.Option(help="Stage of the reply: connect, banner, ehlo, tls, auth, mail, rcpt, data, dot, report.")
]
Provider = Annotated[str, typer.Option(help="Provider, by its name in providers.toml.")]


@app.command()
def check(files: Files = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Test every example at every stage, find rules that never match or contradict others, and count rules by class."""
    settings = configuration(config)
    rules = _load(files or in_force(settings))
    found = problems(rules, _providers(settings))
    counts = Counter(rule.kind for rule in rules.rules)
    examples = sum(len(rule.examples) for rule in rules.rules)
    gone, crossed = overridden(rules), contradictions(rules)
    if as_json:
        over = [{"rule": rule.name, "gives_way_to": claim.name} for rule, claim in gone]
        totals = {"rules": len(rules.rules), "examples": examples, "classes": counts}
        print_json(totals | {"problems": found, "overridden": over, "contradictions": crossed})
    for sentence in () if as_json else found:
        print(sentence)
    if found:
        raise CommandError(
            Exit.PROBLEMS, f"{len(found)} problem{'s' if len(found) > 1 else ''} in {len(rules.rules)} rules"
        )
    if as_json:
        return
    for rule, claim in gone:
        print(f"{rule.file}: rule {rule.name!r} gives way to {claim.name!r} of {claim.file}")
    for sentence in crossed:
        print(sentence)
    rows = [(kind, counts[kind], one.meaning) for kind, one in CLASSES.items() if counts[kind]]
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
    """Show which rule matches a reply: action, subject, whether it suppresses, and which rules disagree."""
    stage = OTHER_NAMES.get(stage, stage)
    if stage not in STAGES:
        raise CommandError(Exit.USAGE, f"there is no stage {stage!r}; use one of {', '.join(STAGES)}")
    settings = configuration(config)
    if provider and provider not in (known := _providers(settings)):
        raise CommandError(Exit.USAGE, f"there is no provider {provider!a}; use one of {', '.join(sorted(known))}")
    rules = _load(in_force(settings))
    try:
        found = explained(rules, reply_of(reply), stage, provider, settings.suppression)
    except ValueError as error:
        raise CommandError(Exit.DATA, str(error)) from None
    if as_json:
        print_json(found.rows())
    elif found.matching:
        _show(found)
    else:
        print(f"No rule matches; class: undefined ({CLASSES['undefined'].meaning})")
        for barred, why in found.barred:
            print(f"{barred.name} ({barred.kind}) has no say: {why}")


@app.command("list")
@tabled
def list_(kind: Class = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the rules in use, in the order in which they are tried."""
    if kind and kind not in CLASSES:
        raise CommandError(Exit.USAGE, f"there is no class {kind!r}; use one of {', '.join(CLASSES)}")
    rules = [rule for rule in _load(in_force(configuration(config))).rules if kind in ("", rule.kind)]
    if as_json:
        print_json([rule_row(rule) for rule in rules])
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


def _show(explained: ExplainedReply) -> None:
    rule, *others = explained.matching
    judged = explained.judged
    rows = [
        ("rule", rule.name),
        ("class", f"{judged.kind}: {CLASSES[judged.kind].meaning}"),
        *([("opinion", explained.opinion)] if explained.opinion else []),
        ("action", effects(judged.action) or "by the code: 5xx bounces, everything else is tried again"),
        ("asks for", conditions(rule)),
        ("file", rule.file),
        ("about", explained.about or "no one is named"),
        ("suppresses", explained.suppresses),
        *(("warning", f"{other.name} disagrees: {other.kind}") for other in explained.disagree),
        *(("also", f"{other.name} ({other.kind})") for other in others),
        *(("not", f"{barred.name} ({barred.kind}): {why}") for barred, why in explained.barred),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def _load(files: list[Path]) -> Rules:
    try:
        return Rules.load(files)
    except RulesError as error:
        raise ConfigError(str(error)) from None
