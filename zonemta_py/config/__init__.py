"""The configuration: typed classes whose docstrings are the reference (config/zonemta.toml is generated from them).

`load(path)` reads TOML; every fault is a `ConfigError` of one sentence that names file, key and remedy. Without a
file the defaults make a relay on loopback that keeps its queue under ~/.local/state/zonemta.
"""

from __future__ import annotations

import os
from pathlib import Path

from zonemta_py import USUAL_CONFIG
from zonemta_py.config.accounts import Account
from zonemta_py.config.cluster import ClusterSection
from zonemta_py.config.file import read
from zonemta_py.config.limits import Learning, Rate, SharesSection, Throttle, Window, rate
from zonemta_py.config.reception import Limits, Listener
from zonemta_py.config.root import Config
from zonemta_py.config.section import NAME, ConfigError
from zonemta_py.config.security import DkimKey, Signing, Tls
from zonemta_py.config.server import Dns, PluginInstance, Plugins, Queue, RulesSection, ServerSection
from zonemta_py.config.services.events import EventSink
from zonemta_py.config.services.http import Http, HttpKey, Right, Role
from zonemta_py.config.services.links import Links, Unsubscribing
from zonemta_py.config.services.pull import QUEUE_NAME, PullSection
from zonemta_py.config.services.return_path import ReturnPath
from zonemta_py.config.sources import Pool, Source, Warmup
from zonemta_py.config.zone import DestinationTable, Retry, SmartHost, Zone

__all__ = [
    "NAME",
    "QUEUE_NAME",
    "USUAL_FILE",
    "Account",
    "ClusterSection",
    "Config",
    "ConfigError",
    "DestinationTable",
    "DkimKey",
    "Dns",
    "EventSink",
    "Http",
    "HttpKey",
    "Learning",
    "Limits",
    "Links",
    "Listener",
    "PluginInstance",
    "Plugins",
    "Pool",
    "PullSection",
    "Queue",
    "Rate",
    "Retry",
    "ReturnPath",
    "Right",
    "Role",
    "RulesSection",
    "ServerSection",
    "SharesSection",
    "Signing",
    "SmartHost",
    "Source",
    "Throttle",
    "Tls",
    "Unsubscribing",
    "Warmup",
    "Window",
    "Zone",
    "is_shared",
    "load",
    "processes",
    "queue_count",
    "queue_numbers",
    "rate",
    "sender_count",
    "usual_file",
]  # fmt: skip

USUAL_FILE = Path(USUAL_CONFIG)


def load(path: Path | None) -> Config:
    """Reads and checks a configuration; None gives the defaults. Raises ConfigError."""
    return Config() if path is None else read(path)


def usual_file() -> Path | None:
    """The configuration of the service on this machine, if there is one: what commands take who are given no other."""
    return USUAL_FILE if os.path.exists(USUAL_FILE) else None


def processes(wanted: int) -> int:
    """The number of receivers or senders that `wanted` means (0: half the processors, at least one)."""
    return wanted or max(1, (os.cpu_count() or 2) // 2)


def queue_numbers(config: Config) -> tuple[int, ...]:
    """Of the queues that there are to be here; the first one has `server.folder` itself."""
    wanted = config.server.queues
    return config.queues_given or tuple(range(processes(0) if wanted == "auto" else wanted))


def queue_count(config: Config) -> int:
    """How many queues there are to be here."""
    return len(queue_numbers(config))


def is_shared(config: Config) -> bool:
    """Whether there are several queues, here or on other machines, which share limits and orders."""
    return bool(config.queues_given) or queue_count(config) > 1


def sender_count(config: Config) -> int:
    """How many sender processes there are to be: each belongs to one queue, and each queue has one."""
    return max(processes(config.server.senders), queue_count(config))
