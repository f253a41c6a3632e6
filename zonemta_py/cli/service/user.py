"""Which user the MTA is to be, and whether that user may read and own what it must; and who asks."""

from __future__ import annotations

import os
from collections.abc import Iterator

from zonemta_py.cli.run.asking import owner
from zonemta_py.cli.service.diagnosis import Diagnosis, note, ok, problem, warning
from zonemta_py.config import Config, ConfigError
from zonemta_py.processes import privileges


def findings(config: Config) -> Iterator[Diagnosis]:
    """For root: about `server.user`. For others: whether they see what the MTA's user sees."""
    if os.geteuid():
        yield from _others(config)
        return
    if not config.server.user:
        yield warning(
            "user", "started as root, the MTA stays root", 'set server.user = "zonemta", a user of its own'
        )  # fmt: skip
        return
    try:
        who = privileges.identity(config)
    except ConfigError as error:
        yield _problem(str(error))
        return
    if who:
        yield from _who(config, who)


def _who(config: Config, who: privileges.Identity) -> Iterator[Diagnosis]:
    wrong = privileges.unreadable(config, who)
    if config.folder.is_dir() and (sentence := privileges.stranger(config.folder, who)):
        wrong.append(sentence)
    yield from map(_problem, wrong)
    if not wrong:
        yield ok("user", f"{who.name} may read all that the configuration names")


def _problem(sentence: str) -> Diagnosis:
    words, _, remedy = sentence.partition("; ")
    return problem("user", words, remedy)


def _others(config: Config) -> Iterator[Diagnosis]:
    if hidden(config):
        yield note(
            "user", f"{privileges.me()} may not look into {config.folder}, so the check is incomplete",
            f"run doctor as {owner(config.folder)}, or as root",
        )  # fmt: skip


def hidden(config: Config) -> bool:
    """Whether the queue's folder is closed to who asks."""
    try:
        return config.folder.is_dir() and not os.access(config.folder, os.R_OK | os.X_OK, effective_ids=True)
    except PermissionError:
        return True
