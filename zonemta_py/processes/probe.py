"""Another configuration is read, loaded and checked in a process of its own, before anything else is done with it.

A plugin that hangs or dies there harms nobody, nor does a file that cannot be read to its end. Whoever waits for the
process goes on with what else there is to do (`patiently`). Failures: `ConfigurationRefused`, with a sentence; OSError
if no process can be started.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.file import SourceFile
from zonemta_py.processes import checks, queue_process
from zonemta_py.processes.pipe import Pipe, pair
from zonemta_py.processes.running import Processes

PROBE_S = 60.0
Again = Callable[[], tuple[Config, SourceFile]]


class ConfigurationRefused(Exception):
    """Why a configuration cannot be taken: sentences."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(" ".join(sentences))
        self.sentences = sentences


class Found(NamedTuple):
    """What was read, and what is wrong with it: sentences, one a line; "" for nothing. files: of its plugins, with a
    digest of each."""

    config: Config
    origin: SourceFile
    fault: str
    files: dict[str, str]


def load(again: Again, processes: Processes, patiently: Callable[[Pipe, float], bool]) -> Found:
    """again: reads the configuration. patiently: waits so long at most for a message, and says whether one came.

    Raises ConfigurationRefused, if there is none, and OSError.
    """
    ours, theirs = pair()
    processes.remember(ours)
    pid = 0
    try:
        try:
            pid = processes.aside(partial(_probe, again, theirs))
        finally:
            theirs.close()
        if not patiently(ours, PROBE_S):
            raise ConfigurationRefused([f"loading it took more than {PROBE_S:g} s; check its file and its plugins"])
        found: Found | str = ours.recv()
    except EOFError:
        raise ConfigurationRefused(
            ["a process that loaded it died; check its plugins with `zonemta config check`"]
        ) from None
    finally:
        processes.forget(ours)
        processes.put_down(pid)
    if isinstance(found, str):
        raise ConfigurationRefused(found.splitlines())
    return found


def _probe(again: Again, pipe: Pipe) -> None:
    """In a process of its own: says what there is."""
    try:
        config, origin = again()
    except BaseException as error:
        pipe.send(_sentence(error))
        return
    fault, files = "", dict[str, str]()
    try:
        host = queue_process.plugins(config)
        files = host.files
        checks.check(config, host)
        checks.load_rules(config)
    except BaseException as error:
        fault = _sentence(error)
    pipe.send(Found(config, origin, fault, files))


def _sentence(error: BaseException) -> str:
    if isinstance(error, ConfigError):
        return str(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return f"it cannot be loaded ({what}); `zonemta config check` says where"
