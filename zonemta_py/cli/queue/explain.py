"""`zonemta explain` and `zonemta lanes`: why mail waits, since when and until when, from the scheduler's own state."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from zonemta_py.cli.queue.commands import LOOKED_S, ZoneName, answer, known_zone, shown_notes
from zonemta_py.cli.terminal import when
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.cli.terminal.options import AsJson, ConfigFile, Folder, in_force, tabled
from zonemta_py.cli.terminal.output import moment, print_aside, print_json, print_table, printable, sentence
from zonemta_py.config import Config
from zonemta_py.mail.addresses.entries import is_covering
from zonemta_py.queue import questions
from zonemta_py.schedule.policy.state import UNUSABLE

_WORDS = {
    "limit": "limit", "rate": "slowed down", "resting": "cannot be reached", "probing": "a trial delivery",
    "hours": "sending hours", "suspended": "suspended", "source": "source address", "dns": "DNS",
    "concurrency": "connections to it", "connections": "connections of the zone", "deferred": "next try",
    "held": "an operator", "deleted": "nothing", "bounced": "nothing", "rest": "source rests",
    "campaign": "suspended", "tenant": "suspended", "destination": "suspended", "domain": "suspended",
    "zone": "suspended", "deadline": "deadline", "pull": "a client", "away": "another node",
    "copy": "nothing is sent", "drain": "nothing is sent", "recovery": "nothing is sent", "disk": "nothing is sent",
}  # fmt: skip
_ENDLESS = {
    "limit": "the limit lets more through", "probing": "that delivery ends", "dns": "DNS answers",
    "suspended": "resumed", "source": "resumed", "concurrency": "one of them ends", "connections": "one of them ends",
    "held": "released or deleted", "deleted": "the task is undone", "bounced": "queued again",
    "rate": "enough deliveries succeed", "pull": "a client fetches it",
    "away": "a node that has it is there",
    "copy": "it is adopted", "drain": "the next start", "recovery": "that is done", "disk": "it is writable again",
}  # fmt: skip
ROWS_MAX, LANES = 200, 1_000
_NOTHING = "nothing holds it"
CHOSEN_MAX = 10
"""Recipients of whom it is shown what plugins have chosen for them, and keep with them."""
_ORDER = ("recipient", "why", "until", "waits for", "message", "since", "zone")
_ORDER_OF_LINES = ("to", "why", "until", "waiting", "waits for", "zone", "from")
_ORDER_OF_LANES = ("site", "waiting", "why not now", "until", "connections", "zone", "source")
_KEYS = ("message", "recipient", "zone", "waits for", "why")
_KEYS_OF_LINES = ("zone", "to", "from", "flow", "waits for", "why", "until")
_KEYS_OF_LANES = ("zone", "site", "source", "flow", "provider")
_LEARNED = {"recipients": "{} recipients per message", "pipelining": "one command at a time"}


@tabled
def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="Message id, recipient, domain, site, provider, campaign, tenant, IP address, or zone."
        ),
    ],
    config: ConfigFile = None,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    """Show why mail is waiting: the cause, since when, until when, and what is sent first."""
    found = _explained(in_force(config, folder), what)
    last = _last(found["rows"])
    listed = found.get("suppressed", [])
    if not found["rows"] and not listed and found["kind"] in ("message", "recipient"):
        raise CommandError(Exit.DATA, printable(_absent(found["about"])))
    if json:
        return print_json({**found, "last": last})
    _show_whole(found)
    for entry in listed:
        print_aside(_suppressed(entry, found["about"]))
    if listed and not found["rows"]:
        print_aside("Nothing is waiting for it")
        return None
    if not found["rows"]:
        print(printable(_idle(found)))
        _show_meanwhile(found)
        return _show_learned(found)
    now_ms = int(time.time() * 1000)
    if "recipient" in found["rows"][0]:
        _show_recipients(found, now_ms)
    else:
        _show_lines(found, last, now_ms)
    _show_meanwhile(found)
    if any(reason["kind"] == "suspended" for row in found["rows"] for reason in row["reasons"]):
        print_aside("What is suspended: `zonemta standing` shows by which command each is resumed")
    return None


def _explained(config: Config, what: str) -> questions.Explained:
    """The whole answer, though the queue looks only for a moment each time."""
    found = answer(config, questions.explain, what=what)
    page, begun, looked = found, time.monotonic(), found["looked"]
    while page["next"] and len(found["rows"]) < ROWS_MAX:
        if time.monotonic() > begun + LOOKED_S and sys.stderr.isatty():
            print(f"\r\x1b[Klooked at {looked:,} recipients", end="", file=sys.stderr, flush=True)
        page = answer(config, questions.explain, what=what, after=page["next"])
        found["rows"] += page["rows"]
        looked += page["looked"]
    if time.monotonic() > begun + LOOKED_S and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return found | {"next": page["next"], "looked": looked}


def _show_meanwhile(found: questions.Explained) -> None:
    """Sources that cannot be used, and who has their mail; reroutes."""
    for reason in found.get("meanwhile", ()):
        end = f", until {when.until(reason['until_ms'], int(time.time() * 1000), '')}" if reason["until_ms"] else ""
        print_aside(sentence(reason["cause"]) + end)


def _show_whole(found: questions.Explained | questions.Lanes) -> None:
    """What keeps all mail from going, whatever else may be said."""
    for reason in found["whole"]:
        print_aside(f"Nothing is sent: {reason['cause']}")


def _absent(about: str) -> str:
    """Where to look instead."""
    where = f"`zonemta trace {about}` tells which"
    return f"{about} is not in the queue: it was delivered, returned, removed or never accepted; {where}"


def _suppressed(entry: questions.SuppressionRow, about: str) -> str:
    """What the suppression list says of it."""
    scope = "" if entry["scope"] == "all" else f" of scope {entry['scope']}"
    covers = f", which covers {printable(about)}," if is_covering(entry["address"]) else ""
    return (
        f"{entry['address']}{covers} has been on the suppression list since {moment(entry['since_ms'])} "
        f"({entry['kind']}): no mail{scope} goes to it, except through zones whose `suppress` omits that kind; "
        "`zonemta suppression explain`"
    )


def _idle(found: questions.Explained) -> str:
    kind, about, counts = found["kind"], found["about"], found.get("counts") or {}
    later = [f"{counts[name]:,} {name}" for name in ("queued", "deferred", "held") if counts.get(name)]
    if later and found["whole"]:
        return f"In {kind} {about} are {', '.join(later)}; nothing is sent before that has ended"
    if later:
        listed = f"`zonemta queue list {_option(found)}` shows until when each waits"
        return f"Nothing holds {kind} {about} itself; in it are {', '.join(later)}: {listed}"
    if kind == "destination" and "counts" not in found:
        return f"Nothing holds {about}; `zonemta queue list {_option(found)}` shows what is deferred for it"
    return f"Nothing is waiting for {kind} {about}, and nothing holds it; `zonemta queue size` shows the rest"


def _option(found: questions.Explained) -> str:
    """By which `queue list` lists what it is about."""
    name = "zone" if found["kind"] == "zone" else "domain" if "counts" in found else "site"
    return f"--{name} {shlex.quote(found['about'])}"


# -- recipients


def _show_recipients(found: questions.Explained, now_ms: int) -> None:
    columns = ("recipient", "message", "zone", "waits for", "why", "since", "until", "before it ")
    cells = [row for recipient in found["rows"] for row in _recipient_rows(recipient, now_ms)]
    print_table(f"Why {found['kind']} {found['about']} waits", columns, cells, _more(found), _ORDER, _KEYS)
    free = [row for row in found["rows"] if not row["reasons"] and row["state"] == "queued"]
    if free:
        print_aside(_turn(free[0]))
    _show_plugins(found["rows"])
    if life := next((row["life"] for row in found["rows"] if row.get("life", {}).get("until_ms")), None):
        print_aside(_life(life, now_ms))


def _show_plugins(rows: list[dict[str, Any]]) -> None:
    """What plugins have chosen for the first of those that they have chosen anything for, and keep with them."""
    for row in [row for row in rows if row.get("chosen")][:CHOSEN_MAX]:
        said = ", ".join(f"{name} {value}" for name, value in row["chosen"].items())
        print_aside(f"Chosen for {_whom(row, rows)}: {said}")
    for row in [row for row in rows if row.get("notes")][:CHOSEN_MAX]:
        said = ", ".join(f"{name} {value}" for name, value in shown_notes(row))
        print_aside(f"Notes of plugins on {_whom(row, rows)}: {said}")


def _whom(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    return str(row["recipient"]) if len(rows) > 1 else "it"


def _recipient_rows(row: dict[str, Any], now_ms: int) -> Iterator[Sequence[object]]:
    about = (row["recipient"], row["id"], row["zone"])
    before = f"{row['before']:,}" if row.get("counted", True) else f"{row['before']:,} or more"
    if row["state"] == "leased" and "holder" in row:
        yield *about, *_taken(row, now_ms), ""
        return
    if row["state"] == "leased":
        way = f" from {row['source']}" if row["source"] else ""
        yield *about, "nothing", f"{row['worker']} is delivering it to {row['site']}{way}", _since(row, now_ms), "", ""
        return
    if row["state"] != "queued":
        before = ""
    for number, reason in enumerate(row["reasons"]):
        yield *about, *_reason(reason, now_ms), before if number == 0 else ""
    if not row["reasons"]:
        yield *about, "its turn", _NOTHING, "", "", before


def _taken(row: dict[str, Any], now_ms: int) -> tuple[str, str, str, str]:
    """waits for, why, since, until: of what somebody has pulled."""
    who = row["holder"] or "a client"
    if not row["until_ms"]:
        return "a client", f"{who} is fetching it now", _since(row, now_ms), "all of it is there"
    until = when.until(row["until_ms"], now_ms)
    return "its acknowledgement", f"{who} has reserved it", _since(row, now_ms), until


def _since(row: Mapping[str, Any], now_ms: int) -> str:
    return when.since(row.get("since_ms", 0), now_ms)


def _turn(row: dict[str, Any]) -> str:
    """What the turn of a recipient that nothing holds depends on."""
    first = f"the {row['before']:,} before it" if row["before"] else "no other recipient of its flow"
    return (
        f"Its turn depends on {first}, on higher priorities, on the shares of campaigns and tenants, and on free "
        "connections; see `zonemta lanes`"
    )


def _life(life: dict[str, Any], now_ms: int) -> str:
    """Until when it is tried. Of several recipients that of the first: most have the same."""
    chosen = life["chosen_ms"] / 1000
    most = f", after {when.length(life['life_h'] * 3600)} in which it might go" if life.get("life_h") else ""
    free = (
        f" ({when.length(chosen)} do not count: it was suspended or held, or its hours were closed)" if chosen else ""
    )
    return f"It is tried until {when.until(life['until_ms'], now_ms)}, then it expires{most}{free}"


# -- lines of mail


def _show_lines(found: questions.Explained, last: dict[str, Any] | None, now_ms: int) -> None:
    columns = ("zone", "to", "from", "flow", "waiting ", "waits for", "why", "since", "until")
    cells = [line for row in found["rows"] for line in _line_rows(row, now_ms)]
    counts = found.get("counts") or {}
    rest = [f"{counts[name]:,} {name}" for name in ("queued", "deferred", "held") if counts.get(name)]
    footer = "; ".join(part for part in (_more(found), ", ".join(rest) + " in all" if rest else "") if part)
    print_table(f"Why {found['kind']} {found['about']} waits", columns, cells, footer, _ORDER_OF_LINES, _KEYS_OF_LINES)
    _show_learned(found)
    if last:
        limit, goes = f"{last['name']} ({last['of']})", f"goes in {when.length(last['s'])} at the earliest"
        print_aside(f"By the limit {limit} the last of {last['waiting']:,} {goes}")
    if counts.get("deferred"):
        print_aside(f"Deferred recipients: `zonemta queue list {_option(found)} --state deferred`")


def _last(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The limit that lets the last of them go latest, and in how many seconds; None: none delays it. Mail elsewhere
    that shares it, and what is tried again, make that later."""
    waiting, limits = dict[tuple[str, str], int](), dict[tuple[str, str], dict[str, Any]]()
    for row in rows:
        for limit in row.get("limits", ()):
            key = limit["name"], limit["of"]
            waiting[key], limits[key] = waiting.get(key, 0) + row["waiting"], limit
    found = [
        {"name": name, "of": of, "waiting": waiting[name, of],
         "s": round(limit["ahead_s"] + (waiting[name, of] - limit["burst"]) * limit["every_s"], 3)}
        for (name, of), limit in limits.items()
    ]  # fmt: skip
    return max((one for one in found if one["s"] > 1), key=lambda one: one["s"], default=None)


def _show_learned(found: questions.Explained) -> None:
    for row in found.get("learned", ()):
        print_aside(f"Learned about {row['name']}: {_LEARNED[row['kind']].format(row['most'])} ({row['cause']})")


def _line_rows(row: dict[str, Any], now_ms: int) -> Iterator[Sequence[object]]:
    if "stopped" in row:
        yield "", row["name"], "", "", "", *_reason(row["reasons"][0], now_ms)
        return
    about = (row["zone"], _to(row), row["source"], _flow(row), _waiting(row))
    for reason in row["reasons"]:
        yield *about, *_reason(reason, now_ms)
    if not row["reasons"]:
        yield *about, "its turn" if row["waiting"] or row["parked"] else "", _NOTHING, "", ""


def _reason(reason: questions.Reason, now_ms: int) -> tuple[str, str, str, str]:
    """waits for, why, since, until."""
    kind = reason["kind"]
    endless = "it can be used again" if UNUSABLE in reason["cause"] else _ENDLESS.get(kind, "resumed")
    end = when.until(reason["until_ms"], now_ms, endless)
    return _WORDS.get(kind, kind), sentence(reason["cause"]), _since(reason, now_ms), end


def _to(row: dict[str, Any]) -> str:
    return f"{_site(row)} ({row['provider']})" if row["provider"] else _site(row)


def _site(row: Mapping[str, Any]) -> str:
    """With what keeps its mail apart from other mail to that site."""
    apart = row.get("apart", "").removeprefix("@")
    return f"{row['site']}, only {apart}" if apart else str(row["site"])


def _flow(row: Mapping[str, Any]) -> str:
    """Priority, tenant and campaign, as far as it has them, and the tables of settings that hold for it."""
    said = [f"priority {row['priority']}"] if row["priority"] else []
    said += [f"settings {', '.join(row['tables'])}"] if row.get("tables") else []
    return ", ".join([*said, *(f"{name} {row[name]}" for name in ("tenant", "campaign") if row[name])])


def _waiting(row: Mapping[str, Any]) -> str:
    return f"{row['waiting']:,}" if row["counted"] else f"{row['waiting']:,} or more"


def _more(found: questions.Explained) -> str:
    if found["more"]:
        return f"{found['more']:,} more are not shown"
    return "There may be more, which are not shown" if found.get("next") else ""


# -- all of them


@tabled
def lanes(zone: ZoneName = None, config: ConfigFile = None, folder: Folder = None, json: AsJson = False) -> None:
    """List the scheduler's in-memory queues, longest first, and why each is not being sent."""
    chosen = in_force(config, folder)
    page = answer(chosen, questions.lanes, zone=known_zone(chosen, zone))
    rows = page["rows"]
    while page["next"] and len(rows) < LANES:  # each comes as far as its time allows
        page = answer(chosen, questions.lanes, zone=zone, limit=LANES - len(rows), after=page["next"])
        rows += page["rows"]
    rows.sort(key=lambda row: (-row["waiting"], not row["parked"], row["site"], row["source"]))
    if json:
        return print_json(rows)
    _show_whole(page)
    columns = (
        "zone", "site", "source", "provider", "flow", "waiting ", "parked", "connections ", "why not now", "until",
    )  # fmt: skip
    now_ms = int(time.time() * 1000)
    footer = "" if rows else "Nothing is waiting in memory; `zonemta queue size` counts what is deferred or held"
    of = " by their largest part in one queue" if page.get("by_part") else ""
    footer = f"These are the {len(rows):,} longest{of}; --zone shows those of one zone" if page["next"] else footer
    cells = [_lane(row, now_ms) for row in rows]
    return print_table(f"Lanes: {len(rows)}", columns, cells, footer, _ORDER_OF_LANES, _KEYS_OF_LANES)


def _lane(row: questions.LaneDocument, now_ms: int) -> Sequence[object]:
    why, until = "", ""
    if row["reasons"]:
        word, cause, _, until = _reason(row["reasons"][0], now_ms)
        why = sentence(f"{word}: {cause}")
    return (
        row["zone"], _site(row), row["source"], row["provider"], _flow(row), _waiting(row),
        "yes" if row["parked"] else "no", f"{row['active']} of {row['window'] or 'any number'}", why, until,
    )  # fmt: skip
