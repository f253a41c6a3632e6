"""Applies the rules to each reply of a result, and the outcome to the destination, its source and its mail. What no
server said brings its class with it (`Outcome.kind`): no rule reads our own sentences, which name hosts of strangers.

A rule may change a verdict (retry a permanent refusal, give up on a deferral), set the time of the next try, and ask
for more: less speed, fewer connections, a rest for the source, a suspension. Without a matching rule the defaults hold:
a destination that cannot be reached rests. A TLS requirement of some mail that is not met concerns that mail only:
rules classify it, but the destination rests only if the whole zone requires TLS, and TLS is never dropped because of
it. What failed by a choice for its recipients alone (`Result.chosen`) teaches nothing about the destination.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import logging
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from zonemta_py.config import Config, ConfigError
from zonemta_py.config.section import shipped
from zonemta_py.disk.files import changed
from zonemta_py.logs.causes import cause
from zonemta_py.mail.classify import LOCAL, NO_PORT, TLS_POLICY
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.reroute import HOST, REROUTE, SKIP, ZONE, RerouteTarget, name_of
from zonemta_py.queue.api import BOUNCED, DEFERRED, DELIVERED, POSTPONED, RELEASED, Outcome, Result
from zonemta_py.queue.core.core import Core
from zonemta_py.queue.hooks import attributed
from zonemta_py.queue.lifecycle.lease import Lease
from zonemta_py.schedule.batch import EgressPath
from zonemta_py.schedule.policy.state import NO_TLS

if TYPE_CHECKING:
    from zonemta_py.mail.rules.rule import Action
    from zonemta_py.mail.rules.rules import Classified, Rules

log = logging.getLogger(__name__)

OURS = LOCAL | {"plugin", "queue", "limit", "pull"}
"""Stages at which no remote server has replied."""
UNTRIED = OURS | {TLS_POLICY}
"""Stages that say nothing about what the destination can take."""
NO_TLS_S = 86_400.0
ANOTHER_S = 0.5
"""Until mail goes by another one."""
MAIL_STAGES = frozenset(("mail", "rcpt", "data", "body", "dot"))
REPORT = "report"
"""The stage of a reply that came later, quoted by somebody else."""
GREYLISTING = "greylisting"
_PRIVATE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)
"""Addresses that the outside does not see (RFC 1918, RFC 6598, RFC 4193)."""
SAID_TIMES = 4
"""How many times a server's requested delay is used; then the retry schedule counts."""


def load(config: Config) -> Rules:
    """The configured rules, our own first. Raises ConfigError. Compiled once: child processes inherit them by fork."""
    # Imported here, like all that only replies need: a start accepts mail before it loads them.
    from zonemta_py.mail.rules.rule import RulesError

    own, file = config.rules.extra, config.rules.file or shipped("rules.toml")
    try:
        paths = (own, file) if own else (file,)
        return _compiled(paths, tuple(changed(path) for path in paths))
    except (RulesError, OSError) as error:
        key = next((f"rules.{key}: " for key, path in (("extra", own), ("file", file)) if f"{path}:" in str(error)), "")
        said = cause(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{key}{said}") from None


@lru_cache(4)
def _compiled(paths: tuple[Path, ...], _: tuple[tuple[int, ...], ...]) -> Rules:
    from zonemta_py.mail.rules.rules import Rules

    return Rules.load(list(paths))


class Classification:
    """Processes every result once, before it is recorded."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @cached_property
    def _rules(self) -> Rules:
        return load(self._core.config)

    def configure(self, rules: Rules) -> None:
        """These hold from now on."""
        self._rules = rules

    def judge(self, lease: Lease, result: Result) -> list[Classified | None]:
        """Returns the rule that matched each outcome, and changes the outcomes accordingly."""
        classifieds: list[Classified | None] = []
        for place, outcome in enumerate(result.outcomes):
            if outcome.stage in LOCAL and lease.batch.path.source and not result.chosen:
                outcome = result.outcomes[place] = self._without_source(lease, outcome)
            if outcome.kind:
                classifieds.append(self._rules.own(outcome.kind, outcome.stage))
                continue
            if outcome.verdict not in (DEFERRED, BOUNCED) or outcome.stage in OURS:
                classifieds.append(None)
                continue
            provider = lease.batch.path.provider
            classified = self._rules.judge(outcome.reply, outcome.stage, provider, _addresses(lease, result))
            if classified.agreed:
                classified = _of_these(classified, outcome, lease)
            classifieds.append(classified)
            result.outcomes[place] = self._waits(lease, _turned(outcome, classified), classified)
        return classifieds

    def _without_source(self, lease: Lease, outcome: Outcome) -> Outcome:
        """The source address, or its proxy, cannot be used: no attempt is counted. Its mail goes by others of its pool
        at once; where there is none, or its sender has chosen that one, it waits until it can be used."""
        if outcome.verdict != DEFERRED or outcome.reply.enhanced == NO_PORT:
            return outcome
        self._core.schedule.source_health.failed(lease.batch.path.source, outcome.reply.text)
        return dataclasses.replace(outcome, verdict=POSTPONED, delay_s=ANOTHER_S)

    def quoted(self, reply: Reply) -> Classified:
        """Of a reply that a report quotes."""
        return self._rules.judge(reply, REPORT, "")

    def _waits(self, lease: Lease, outcome: Outcome, classified: Classified) -> Outcome:
        """The delay that the server has asked for, in the first few attempts only: it may ask for ever."""
        own = classified.action.delay_s and classified.kind != GREYLISTING
        if outcome.verdict != DEFERRED or outcome.stage not in MAIL_STAGES or own:
            return outcome
        from zonemta_py.mail.rules.waiting_time import said_wait_s

        said_s = said_wait_s(outcome.reply.text)
        if said_s is None or any(lease.batch.entries[i].note.attempts >= SAID_TIMES for i in outcome.recipients):
            return outcome
        return dataclasses.replace(outcome, delay_s=said_s)

    def learn(self, lease: Lease, result: Result, classifieds: list[Classified | None]) -> None:
        """Acts on the matched rules, and on how the destination has behaved."""
        batch, policy = lease.batch, self._core.schedule.policy
        path, zone = batch.path, batch.zone
        if zone.zone.delivery == "pull":
            return  # we have connected to nobody
        admission = self._core.schedule.admission
        all_delivered = bool(result.outcomes)
        for outcome in result.outcomes:
            lease.tried = lease.tried or outcome.stage not in UNTRIED
            all_delivered = all_delivered and outcome.verdict == DELIVERED
        if batch.charge is not None and not result.more:
            released = sum(len(o.recipients) for o in result.outcomes if o.verdict == RELEASED)
            admission.unused(batch, result.opened, lease.tried, result.kept, released)
        if result.recipients_max or result.stalled:
            policy.manners.learn(path.site, result.recipients_max, result.stalled, result.manner)
        if not result.outcomes:
            return
        if all_delivered and not path.failures and not path.source:
            if zone.away.waiting:
                zone.answered(path)
            policy.delivered(path)  # the usual case, on a short path
            path.concurrency.succeeded(path.active)
            return
        tried = any(outcome.stage not in UNTRIED for outcome in result.outcomes)
        delivered = sum(len(o.recipients) for o in result.outcomes if o.verdict == DELIVERED)
        if delivered:
            policy.delivered(path)
        if path.source:
            health = self._core.schedule.source_health
            if health.troubled and any(outcome.stage not in OURS for outcome in result.outcomes):
                health.worked(path.source)
            for outcome, classified in zip(result.outcomes, classifieds, strict=True):
                kind = classified.kind if classified else ""
                count, stage = len(outcome.recipients), outcome.stage
                policy.count(path.source, path.site, path.provider, outcome.verdict, kind, count, stage, batch.day)
        if self._core.hooks.sends:
            self._rest(path, result)
        if result.chosen:
            return  # others have another login, or TLS, or host
        dead, spoken = False, False
        for outcome, classified in zip(result.outcomes, classifieds, strict=True):
            if classified is not None:
                acted, died = self._act(lease, path, outcome, classified, result.remote.partition("[")[0])
                spoken, dead = spoken or acted, dead or died
        if result.down_s is not None and (dead or not spoken):
            text = str(result.outcomes[0].reply) if result.outcomes else ""
            if not spoken:
                policy.learned_concurrency.failed(zone.zone, path.place, path.source, text)
            zone.down(path, self._core.schedule.now(), result.down_s, text)
        elif dead:
            zone.down(path, self._core.schedule.now(), 0, str(result.outcomes[0].reply))
        elif tried:
            zone.answered(path)
            zone.up(path)
            if result.down_s is None and not spoken:
                path.concurrency.succeeded(path.active)

    def _rest(self, path: EgressPath, result: Result) -> None:
        """Nothing goes to a site that a plugin lets rest."""
        for outcome in result.outcomes:
            if outcome.rest_s and outcome.by:
                cause = attributed(outcome.reply, *outcome.by[:2])
                self._core.schedule.policy.stop("destination", path.site, outcome.rest_s, cause)

    def _reroute(self, lease: Lease, path: EgressPath, action: Action, remote: str, cause: str) -> None:
        """What the zone has for that site goes another way for a time; not what goes by a reroute to a smart host
        already, and not to where it is."""
        schedule, text, zone = self._core.schedule, action.reroute, lease.zone.name
        if text == SKIP:
            text = f"{SKIP} {remote}"
        try:
            to = RerouteTarget.of(text)
        except ValueError:  # a connection by an address alone
            return
        first = lease.batch.entries[0]
        now = lease.batch.zone.flow_queues.bypass(first.address, first.note)
        if (to.kind == ZONE and to.name == zone) or (now is not None and now.to.kind in (HOST, to.kind)):
            return
        if lack := schedule.reroutes.lacks(to):
            log.warning("%s: it is not rerouted, as the configuration has no %s", cause, lack)
            return
        name = name_of(zone, path.site)
        schedule.policy.stop(REROUTE, name, action.reroute_s, cause, to=to.text)
        schedule.changed()

    def _act(
        self, lease: Lease, path: EgressPath, outcome: Outcome, classified: Classified, remote: str
    ) -> tuple[bool, bool]:
        """Does what the rule asks. Returns whether the rule decided how to treat the destination, and whether that is
        down now."""
        action, policy = classified.action, self._core.schedule.policy
        cause = f"{classified.rule}: {outcome.reply}"
        asks = bool(action.slow or action.fewer or action.rest_s or action.suspend)
        no_tls = action.no_tls and outcome.stage != TLS_POLICY
        if not (asks or no_tls or action.reroute) or not policy.counted(path, classified):
            return asks, False
        if no_tls:
            policy.stop(NO_TLS, path.site, NO_TLS_S, cause)
        if action.slow:
            policy.slowed(path, cause, lease.since_ms)
        dead = policy.learned_concurrency.failed(lease.zone, path.place, path.source, cause) if action.fewer else False
        if action.rest_s and path.source:
            policy.stop("rest", f"{path.source} {path.site}", action.rest_s, cause)
            self._core.schedule.changed()
        elif action.rest_s:  # the only source address: the destination rests instead
            policy.stop("destination", path.site, action.rest_s, cause)
        if action.reroute:
            self._reroute(lease, path, action, remote, cause)
        if action.suspend:
            flow_id = lease.batch.flow_queue.flow_id
            name = {"destination": path.site, "tenant": flow_id.tenant, "campaign": flow_id.campaign}[action.suspend]
            if name:
                tenants = (flow_id.tenant,) if action.suspend == "campaign" else ()
                policy.stop(action.suspend, name, action.suspend_s, cause, tenants=tenants)
        return asks, dead


def _addresses(lease: Lease, result: Result) -> frozenset[str]:
    """By which the server knows us; empty where a private one is another to it."""
    return _known(lease.batch.path.source, result.local)


@lru_cache(1_000)
def _known(*addresses: str) -> frozenset[str]:
    found = frozenset(filter(None, addresses))
    return frozenset() if any(map(_translated, found)) else found


def _translated(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return True  # a name, or what stands for any address
    return any(parsed in network for network in _PRIVATE if network.version == parsed.version)


def _of_these(classified: Classified, outcome: Outcome, lease: Lease) -> Classified:
    """Not agreed if the reply names somebody else: "550 no such user <sender@…>" says nothing of the recipient."""
    from zonemta_py.mail.rules.rules import names_another

    addresses = [lease.batch.entries[index].address for index in outcome.recipients]
    return classified._replace(agreed=not names_another(outcome.reply.text, addresses))


def _turned(outcome: Outcome, classified: Classified) -> Outcome:
    """The outcome as changed by the rule."""
    action = classified.action
    delay_s = action.delay_s or outcome.delay_s
    if action.verdict == "retry" and outcome.verdict == BOUNCED:
        return dataclasses.replace(outcome, verdict=DEFERRED, reply=_softened(outcome.reply), delay_s=delay_s)
    if action.verdict == "bounce" and outcome.verdict == DEFERRED:
        return dataclasses.replace(outcome, verdict=BOUNCED, reply=_hardened(outcome.reply))
    return dataclasses.replace(outcome, delay_s=delay_s) if delay_s != outcome.delay_s else outcome


def _hardened(reply: Reply) -> Reply:
    """As a permanent reply; otherwise the sender would be told that the lifetime was over."""
    if reply.permanent:
        return reply
    enhanced = "5" + reply.enhanced[1:] if reply.enhanced else "5.0.0"
    return Reply(554, enhanced, f"{reply} (given up by rule)")


def _softened(reply: Reply) -> Reply:
    """As a temporary reply, so that verdict and record agree; the text keeps the original reply."""
    enhanced = "4" + reply.enhanced[1:] if reply.enhanced else "4.0.0"
    return Reply(451, enhanced, f"{reply} (tried again by rule)")
