"""What would make processes fail again and again, looked for before they are started: missing files, certificates,
passwords, keys, rules, names of providers. All that is wrong is one `ConfigError`, a sentence each."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from zonemta_py.config import Config, ConfigError, queue_numbers
from zonemta_py.config.section import Place, every, shipped
from zonemta_py.config.values import OnDisk, marked, written
from zonemta_py.journal.folders import QUEUES_MAX, folder_of
from zonemta_py.plugin.host import Host
from zonemta_py.queues.layout import far_folder
from zonemta_py.wire import PATH_BYTES_MAX, SOCKET


def load_rules(config: Config) -> None:
    """Reads rules for replies and texts of notices, so that all processes share them. Raises ConfigError."""
    from zonemta_py.queue.lifecycle import settle

    settle.load(config)


def check(config: Config, host: Host) -> None:
    """Checks what would make children fail repeatedly: certificates, passwords, keys. Raises ConfigError, with all that
    is wrong."""
    every(lambda: check_listeners(config, host), lambda: check_others(config))


def check_others(config: Config) -> None:
    """The part of it that concerns the queue and senders. Raises ConfigError."""
    missing = _missing(config, lambda place: place[0] not in _DOORS)

    def rules() -> None:
        if config.rules.file or config.rules.extra:
            load_rules(config)

    def texts() -> None:
        if "notices" in config.model_fields_set:
            from zonemta_py.queue.lifecycle import notices

            notices.load(config)

    def keys() -> None:
        if config.dkim:
            from zonemta_py.delivery.message import dkim_keys

            dkim_keys.check(config)

    def tls() -> None:
        own = [*(one.client_certificate for one in config.zones), *(t.client_certificate for t in config.destinations)]
        if config.tls.ca_file or any(own):
            from zonemta_py.delivery.tls import contexts as tls_contexts

            tls_contexts.check(config)

    def sinks() -> None:
        if config.event_sinks:
            from zonemta_py.events.sinks import kinds

            kinds.check(config.event_sinks)

    def cluster() -> None:
        if config.cluster.enabled:
            try:
                from zonemta_py.cluster import nats
            except ModuleNotFoundError as error:
                raise ConfigError(
                    f"cluster.name: a cluster needs the Python package {error.name}, which is not installed; run: pip"
                    " install 'zonemta-py[cluster]'"
                ) from None
            nats.tls_context(config.cluster)

    _besides(
        missing, lambda: _check_folder(config), rules, texts, keys, tls, sinks, cluster,
        lambda: _check_providers(config),
    )  # fmt: skip


_DOORS = ("listeners", "http", "pull", "links")


def _missing(config: Config, wanted: Callable[[Place], bool]) -> dict[str, str]:
    """Path → sentence, of files and folders that the configuration names and that are not there. What is not enabled
    needs none."""
    off = {kind for kind in ("http", "pull", "links") if not getattr(config, kind).enabled}
    found: dict[str, str] = {}
    for place, value, mark in marked(config, OnDisk):
        if place[0] in off or not wanted(place):
            continue
        path = Path(os.path.expanduser(value))
        there, what = (os.path.isdir, "folder") if mark.folder else (os.path.isfile, "file")
        if not there(path) and (not os.path.exists(path) or there is os.path.isdir or os.path.isdir(path)):
            other = f" ({path.name} is a {'file' if mark.folder else 'folder'})" if os.path.exists(path) else ""
            found[str(value)] = (
                f"{written(config, place)}: there is no {what} {value}{other}; name a {what} that is there"
            )
    return found


def _besides(missing: dict[str, str], *checks: Callable[[], object]) -> None:
    """The checks, but for what they say of files that are missing. Raises ConfigError."""
    sentences = list(missing.values())
    try:
        every(*checks)
    except ConfigError as error:
        sentences += [one for one in error.sentences if not any(path in one for path in missing)]
    if sentences:
        raise ConfigError(*sentences)


def _check_providers(config: Config) -> None:
    """The file, and the names that other tables have from it: one that is misspelt would be for nobody, in silence."""
    named = [(f"destinations[{one.name}].providers: ", name) for one in config.destinations for name in one.providers]
    only = [(f"throttles[{one.name}].only.provider: ", one.only.get("provider", "")) for one in config.throttles]
    named += [(where, name) for where, name in only if name and "*" not in name and "?" not in name]
    if not (named or config.dns.providers):
        return
    from zonemta_py.zones.site import Providers

    try:
        providers = Providers.load(config.dns.providers or shipped("providers.toml"))
    except ConfigError as error:
        raise ConfigError(f"dns.providers: {error}") from None
    wrong = []
    for where, name in named:
        if fault := providers.unknown(name):
            more = "; a site that is no provider's is named by site (in destinations: sites)" if "." in name else ""
            wrong.append(f"{where}{fault}{more}")
    if wrong:
        raise ConfigError(*wrong)


def _check_folder(config: Config) -> None:
    there = next(path for path in (config.folder, *config.folder.parents) if path.exists())
    if not there.is_dir():
        raise ConfigError(f"server.folder: {there} is a file; name a folder, which is made if it is not there")
    last = folder_of(config.folder, max(queue_numbers(config))) / SOCKET
    if config.cluster.enabled:
        last = far_folder(config.folder, QUEUES_MAX) / SOCKET
    if (more := len(os.fsencode(last)) - PATH_BYTES_MAX) > 0:
        sentence = (
            f"{config.folder}: is too long by {more} bytes for the path of a socket; name a shorter server.folder"
        )
        raise ConfigError(sentence)


def check_listeners(config: Config, host: Host) -> None:
    """The part of it that concerns receivers. Raises ConfigError."""

    def users() -> None:
        if config.users:
            from zonemta_py.reception.login import Login

            Login(config.users)

    def doors() -> None:
        if any(listener.tls != "none" for listener in config.all_listeners):
            from zonemta_py.reception import tls

            every(*(partial(tls.context, listener, host) for listener in config.all_listeners))

    def dress() -> None:
        if config.links.enabled and config.links.pages is not None:
            from zonemta_py.web.links import pages

            pages.check(config)

    def hooks() -> None:
        if any(hook.certificates for hook in config.http.webhooks):
            from zonemta_py.web.api.feedback import webhooks

            every(*(partial(webhooks.read_certificates, hook) for hook in config.http.webhooks))

    _besides(_missing(config, lambda place: place[0] in _DOORS), users, doors, dress, hooks)
