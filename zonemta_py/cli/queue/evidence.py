"""`zonemta suppression explain`, `guards`, `release` and `drop`: what the queue decides by itself, and why."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import moment, print_aside, print_json, print_table, printable
from zonemta_py.config.suppression import SuppressionSection
from zonemta_py.mail.addresses.entries import is_covering
from zonemta_py.queue import questions

Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="An address, in any spelling.")]
Provider = Annotated[
    list[str], typer.Argument(metavar="PROVIDER", help="A provider, site or source, as `guards` shows it.")
]


@tabled
def explain(address: Address, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Show why an address is or is not on the list: the evidence so far, and how much is needed."""
    found = answer(in_force(config, folder), questions.evidence, address=address)
    if json:
        return print_json(found)
    for sentence in sentences(found):
        print_aside(sentence)
    if found["heard"]:
        columns = ("when", "what", "counts", "reply", "message", "campaign")
        print_table(f"Evidence about {found['address']}", columns, map(_cells, found["heard"]))
    return None


def sentences(found: questions.EvidenceOf) -> list[str]:
    """What the answer to "evidence" means."""
    who, said = found["address"], list[str]()
    for entry in found["entries"]:
        scope = "" if entry["scope"] == "all" else f", scope {entry['scope']}"
        by = "the queue itself" if entry["by"] == "policy" else entry["by"]
        why = f": {entry['reason']}" if entry["reason"] else ""
        since = moment(entry["since_ms"])
        covering = entry["address"] if is_covering(entry["address"]) and entry["address"] != who else ""
        listed = f"{who} is covered by {covering}, which is" if covering else f"{who} is"
        said.append(f"{listed} on the suppression list ({entry['kind']}{scope}) since {since}, by {by}{why}")
    if not found["entries"]:
        said.append(f"{who} is not on the suppression list")
    if not found["heard"]:
        said.append("There is no evidence against sending to this address")
    said += [row["said"][0].upper() + row["said"][1:] for row in found["standing"]]
    for name in found["guards"]:
        said.append(f"Refusals by {name} are held back: `zonemta suppression release {shlex.quote(name)}` counts them")
    return said


def _cells(row: questions.HeardItem) -> list[str]:
    counts = "held back" if row.get("held") else "agreed" if row.get("agreed") else "one of several"
    if row["group"] in ("complaint", "unsubscribe"):
        counts = "at once"
    what = row.get("kind") or row["group"]
    return [moment(row["at_ms"]), what, counts, row.get("said", ""), row["message"], row.get("campaign", "")]


@tabled
def guards(config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List active guards: providers that refused so many recipients at once that their refusals are held back."""
    chosen = in_force(config, folder)
    rows = answer(chosen, questions.guards)
    if json:
        return print_json(rows)
    cells = [[row["name"], f"{row['people']:,}", moment(row["since_ms"]), row["cause"]] for row in rows]
    footer = "" if rows else "Nothing is held back: refusals count as [suppression] says"
    print_table("Held back", ("provider and source", "people", "since", "why"), cells, footer)
    print_aside(_rule(chosen.suppression))
    if rows:
        print_aside("They are not lost: they are kept with these addresses until you decide, or they are refused again")
    for row in rows:
        name = shlex.quote(row["name"])
        print_aside(f"If the addresses do not exist: zonemta suppression release {name}")
        print_aside(f"If they do, and the provider was faulty: zonemta suppression drop {name}")
    return None


def _rule(terms: SuppressionSection) -> str:
    if not terms.guard_people:
        return "Guards are off: suppression.guard_people is 0"
    share = ""
    if terms.guard_share:
        share = (
            f" and {terms.guard_share:.0%} or more of all it answered for (within a day, where bounces came by"
            " mail); fewer count as a list with bad addresses, and are suppressed"
        )
    return (
        f"The rule: one provider newly refuses {terms.guard_people:,} recipients as unknown within"
        f" {terms.guard_within_s:g} s,{share}"
    ).rstrip(",")


def release(name: Provider, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Count the refusals held back at a provider: the addresses really do not exist."""
    _end(name, config, folder, json, drop=False)


def drop(name: Provider, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """Discard the refusals held back at a provider: it was faulty, and the addresses exist."""
    _end(name, config, folder, json, drop=True)


def _end(name: list[str], config: Any, folder: Any, json: bool, drop: bool) -> None:
    chosen, full = in_force(config, folder), " ".join(name)
    count = answer(chosen, questions.guard_release, name=full, drop=drop)
    if not count:
        raise CommandError(Exit.DATA, f"nothing is held back at {full!a}; `zonemta suppression guards` shows where")
    done = "dropped" if drop else "released"
    people = "1 person" if count == 1 else f"{count:,} people"
    print_json({done: count}) if json else print(printable(f"{full}: {done}, for {people}"))
