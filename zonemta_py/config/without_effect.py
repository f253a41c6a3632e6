"""Keys that are set and say nothing: another key of the same table turns them off, or bounds them below what they say.
Each is a warning of `zonemta config check`. What is written as its default is not looked at: `zonemta config show`
prints it so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from zonemta_py.config.cluster import ClusterSection
from zonemta_py.config.reception import Limits, Listener
from zonemta_py.config.root import Config
from zonemta_py.config.section import Place, Section
from zonemta_py.config.security import Tls
from zonemta_py.config.server import Queue
from zonemta_py.config.services.events import SAFE, EventSink
from zonemta_py.config.services.http import Http, HttpKey
from zonemta_py.config.services.links import Links
from zonemta_py.config.services.pull import PullSection
from zonemta_py.config.services.reports import ReportsSection
from zonemta_py.config.services.return_path import ReturnPath
from zonemta_py.config.sources import Source
from zonemta_py.config.suppression import SuppressionSection
from zonemta_py.config.values import written
from zonemta_py.config.zone import SmartHost, Zone


class _Needs(NamedTuple):
    """Keys of a kind of table that say something only where `holds`. why: what follows "says nothing, since "."""

    kind: type[Section]
    keys: tuple[str, ...]
    holds: Callable[[Any], bool]
    why: str


class _Within(NamedTuple):
    """A key that is never more than another one of its table, where that is not 0. default: its default neither; else
    that is what it says, up to the other."""

    kind: type[Section]
    key: str
    most: str
    default: bool = False


_NEEDS = (
    _Needs(Links, ("track_zones", "track_tenants"), lambda one: one.track != "off",
           "track is off; set track = 'asked' or 'on', or remove it"),
    _Needs(ReportsSection, ("lake", "again_after_h", "keep_days", "memory_gb"), lambda one: one.folder is not None,
           "no report is made without folder; set folder, or remove it"),
    _Needs(Tls, ("report_from", "report_organization", "report_contact"), lambda one: one.reports,
           "reports is false; set reports = true, or remove it"),
    _Needs(Tls, ("mta_sts_port",), lambda one: one.mta_sts, "mta_sts is false; set mta_sts = true, or remove it"),
    _Needs(ReturnPath, ("srs_days",), lambda one: one.srs or (one.verp and not one.verp_days),
           "there is no srs; set it, or remove this"),
    _Needs(ReturnPath, ("own_domains", "forward_zone"), lambda one: one.srs, "there is no srs; set it, or remove this"),
    _Needs(ReturnPath, ("unsubscribe_days",), lambda one: one.unsubscribe_domain,
           "there is no unsubscribe_domain; set it, or remove this"),
    _Needs(ReturnPath, ("earlier_secrets",), lambda one: one.secret, "there is no secret; set it, or remove this"),
    _Needs(Listener, ("proxy_networks",), lambda one: one.proxy_protocol,
           "proxy_protocol is false; set proxy_protocol = true, or remove it"),
    _Needs(Listener, ("open_relay",), lambda one: _is_open(one),
           "its networks cover no large part of the Internet, or it is on loopback; remove it"),
    _Needs(Listener, ("key",), lambda one: one.certificate is not None,
           "there is no certificate; set certificate, or remove it"),
    _Needs(Http, ("key",), lambda one: one.certificate is not None,
           "there is no certificate; set certificate, or remove it"),
    _Needs(PullSection, ("key",), lambda one: one.certificate is not None,
           "there is no certificate; set certificate, or remove it"),
    _Needs(Links, ("key",), lambda one: one.certificate is not None,
           "there is no certificate; set certificate, or remove it"),
    _Needs(PullSection, ("queues_max",), lambda one: one.create, "create is false; set create = true, or remove it"),
    _Needs(HttpKey, ("queues",), lambda one: one.role == "admin" or bool({"push", "pop"} & set(one.rights or ())),
           "the key has neither right push nor pop; add one of them to rights, or remove it"),
    _Needs(Zone, ("username",), lambda one: one.password, "there is no password; set password, or remove it"),
    _Needs(SmartHost, ("username",), lambda one: one.password, "there is no password; set password, or remove it"),
    _Needs(Queue, ("campaign_bounds",), lambda one: one.campaign_names,
           "campaign_names is 0, so none has figures; raise that, or remove it"),
    _Needs(Zone, ("host_rest_s",), lambda one: one.hosts, "there are no hosts to pass over; set hosts, or remove it"),
    _Needs(Zone, ("tls_min", "client_certificate"),
           lambda one: one.tls != "none" or one.tls_required_domains or any(host.tls for host in one.hosts),
           "tls is none; set tls = 'required', or remove it"),
    _Needs(Source, ("warmup_since",), lambda one: one.warmup,
           "there is no warmup; name one of [[warmups]], or remove it"),
    _Needs(Source, ("family",), lambda one: not one.family.startswith("ipv") or one.family == _family(one.address),
           "such destinations cannot be reached from its address; set the family of that, or remove it"),
    _Needs(SuppressionSection, ("guard_share", "guard_within_s", "guard_calm_s"), lambda one: one.guard_people,
           "guard_people is 0; raise that, or remove it"),
    _Needs(SuppressionSection, ("unknown", "inactive", "full", "domain"),
           lambda one: one.automatic or any(row.get("automatic") for row in one.tenants.values()),
           "automatic is false; set automatic = true, or remove it"),
    _Needs(HttpKey, ("senders",), lambda one: _injects(one),
           "the key may not hand in mail; add inject to rights, or remove it"),
    _Needs(EventSink, ("url",), lambda one: one.kind != "file", "a file is where path says; remove one of them"),
    _Needs(EventSink, ("username", "password"), lambda one: one.kind not in ("file", "syslog"),
           "there is no login for that kind; remove it"),
    _Needs(EventSink, ("password",), lambda one: one.username or one.kind not in ("amqp", "kafka"),
           "there is no username; set username, or remove it"),
    _Needs(EventSink, ("ring_flush_s",), lambda one: one.ring_bytes, "ring_bytes is 0; raise that, or remove it"),
    _Needs(EventSink, ("keep", "compress"), lambda one: one.rotate_bytes or one.rotate_daily,
           "the file is never rotated; set rotate_bytes or rotate_daily, or remove it"),
    _Needs(EventSink, ("ca_file", "client_certificate"), lambda one: urlsplit(one.url).scheme in SAFE - {"unix"},
           "url is without TLS; write one with TLS, or remove it"),
    _Needs(ClusterSection, tuple(key for key in ClusterSection.model_fields if key != "name"), lambda one: one.name,
           "this machine is in no cluster; set name, or remove it"),
    _Needs(ClusterSection, ("username", "password"), lambda one: not one.name or one.credentials is None,
           "the login is that of credentials; remove one of them"),
    _Needs(ClusterSection, ("ca_file", "client_certificate"),
           lambda one: not one.name or any(url.startswith("tls:") for url in one.servers),
           "servers are without TLS; write tls://, or remove it"),
    _Needs(ClusterSection, ("monitor",), lambda one: not one.name or not one.system_username,
           "system_username is asked instead; remove one of them"),
    _Needs(ClusterSection, ("system_password",), lambda one: not one.name or one.system_username,
           "there is no system_username; set it, or remove this"),
)  # fmt: skip

_WITHIN = (
    _Within(Limits, "connections_per_client", "connections"),
    _Within(Limits, "header_bytes", "message_bytes"),
    _Within(Limits, "line_bytes", "message_bytes"),
    _Within(Limits, "least_bytes_s", "message_bytes"),
    _Within(Http, "requests_per_key", "requests"),
    _Within(Http, "attachment_bytes", "attachments_bytes"),
    _Within(PullSection, "reserve_s", "reserve_max_s", True),
    _Within(Queue, "arriving_bytes_per_client", "arriving_bytes"),
    _Within(Queue, "segment_bytes", "archive_bytes", True),
    _Within(EventSink, "batch_events", "memory_events"),
    _Within(EventSink, "batch_bytes", "memory_bytes"),
    _Within(EventSink, "page_bytes", "ring_bytes", True),
)


def idle(config: Config) -> Iterator[str]:
    """Sentences."""
    off = {kind for kind in ("http", "pull", "links") if not getattr(config, kind).enabled}
    for place, table in _tables(config):
        if place and place[0] in off:
            continue
        for needs in _NEEDS:
            if isinstance(table, needs.kind) and not needs.holds(table):
                for key in (key for key in needs.keys if is_set(table, key)):
                    yield f"{written(config, (*place, key))}: says nothing, since {needs.why}"
        for within in _WITHIN:
            if isinstance(table, within.kind) and (is_set(table, within.key) or is_set(table, within.most)):
                yield from _over(written(config, place), table, within)


def is_set(table: BaseModel, key: str) -> bool:
    """To something else than its default."""
    if key not in table.model_fields_set:
        return False
    return bool(getattr(table, key) != type(table).model_fields[key].get_default(call_default_factory=True))


def _over(where: str, table: Section, within: _Within) -> Iterator[str]:
    value, most = getattr(table, within.key), getattr(table, within.most)
    if not most or value <= most:
        return
    if is_set(table, within.key):
        yield f"{where}.{within.key}: {value} is more than {within.most}, {most}; lower it, or raise that"
    elif within.default:
        yield f"{where}.{within.most}: {most} is less than {within.key}, {value}; raise it, or lower that"


def _is_open(listener: Listener) -> bool:
    """Whether it would be refused if it did not say so."""
    try:
        Listener.model_validate({**listener.model_dump(), "open_relay": False})
    except ValidationError:
        return True
    return False


def _injects(key: HttpKey) -> bool:
    given = key.rights or ()
    return key.role in ("inject", "admin") or not (key.role or given) or bool({"inject", "campaigns"} & set(given))


def _family(address: str) -> str:
    return "ipv6" if ":" in address else "ipv4"


def _tables(section: Section, place: Place = ()) -> Iterator[tuple[Place, Section]]:
    """It, and all tables in it."""
    yield place, section
    for key in type(section).model_fields:
        value = getattr(section, key)
        if isinstance(value, Section):
            yield from _tables(value, (*place, key))
        elif isinstance(value, list):
            for number, one in enumerate(value):
                if isinstance(one, Section):
                    yield from _tables(one, (*place, key, number))
