"""What `zonemta config check` doubts about pull zones: mail that would wait for nobody, and what a queue's folder holds
that another kind of zone would get."""

from __future__ import annotations

from collections.abc import Iterator

from zonemta_py.cli.queue.commands import answer
from zonemta_py.cli.terminal.errors import CommandError
from zonemta_py.config import Config
from zonemta_py.queue import questions


def doubts(config: Config) -> Iterator[str]:
    """Warnings that the file alone gives reason for."""
    zone = config.default_zone
    if zone.pulled:
        yield (
            f"warning: zone {zone.name!r} is the default and a pull zone: all mail that no rule claims, and"
            " notifications to senders too, wait there and are not sent; set default = true in an SMTP zone"
            " unless that is meant"
        )
    pulled = [zone.name for zone in config.zones if zone.pulled]
    if pulled and not config.services:
        yield (f"warning: no client can fetch the mail in {_named(pulled)}: set enabled = true in [pull], or in [http]")


def turned(config: Config) -> Iterator[str]:
    """Warnings about what waits in the running queue of the configured folder. Raises ConfigError."""
    try:
        rows = answer(config, questions.queues)
    except CommandError as error:
        yield f"warning: mail waiting in {config.folder} was not checked: {error}"
        return
    for row in rows:
        name, count = row["zone"], sum(row[state] for state in ("ready", "leased", "delayed", "held"))
        zone = config.zone(name)
        if zone is None or zone.pulled or not count:
            continue
        if row["pushed"]:
            yield (
                f"warning: zone {name!r} is a pull zone no longer: {row['pushed']:,} pushed messages will be in the"
                f" queue queue/{name}, where `pop {name}` takes them; they are not sent"
            )
        if count > row["pushed"]:
            yield (
                f"warning: zone {name!r} is a pull zone no longer: {count - row['pushed']:,} recipients of mail that"
                " wait there to be fetched will be sent to by SMTP"
            )


def _named(names: list[str]) -> str:
    return f"zone {names[0]!r}" if len(names) == 1 else f"the zones {', '.join(map(repr, names))}"
