"""MTA-STS policies (RFC 8461): found through DNS, fetched over HTTPS, kept for their max_age, also across restarts.

A known policy stays in force until its max_age ends, even if DNS or HTTPS fail meanwhile or the record is gone (RFC
8461 5.1): otherwise an attacker who suppresses an answer could disable it. A new id in DNS triggers a fetch; so does
the policy's age, in the background, once a day or at half its max_age. After a failed fetch none is tried for
FAILURE_S.

On disk: FOLDER/NAME.json, one for each domain, replaced atomically and shared by all sender processes. A file that
cannot be read counts as missing. Failures reach the caller only as `PolicyFound.result`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.tls import https
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.https import Barred, HttpsFailed
from zonemta_py.disk.files import replace_file
from zonemta_py.logs.causes import cause
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.classify import NoRoute, TlsFailed
from zonemta_py.mail.tls.mta_sts import POLICY_BYTES_MAX, Sts, parse, record_id


class Names(Protocol):
    """DNS queries. Each raises NoRoute; `now` is monotonic seconds."""

    async def txt(self, name: str, now: float) -> tuple[bool, list[str]]:
        """Whether the answer is DNSSEC-validated, and the texts."""

    async def tlsa(self, host: str, port: int, now: float) -> tuple[bool, list[tuple[int, int, int, bytes]]]:
        """Whether the answer is DNSSEC-validated, and the records."""

    async def addresses(self, host: str, now: float) -> tuple[str, ...]:
        """IPv4 and IPv6."""


log = logging.getLogger(__name__)

DOMAINS_MAX = 10_000
"""Policies in memory."""
FAILURE_S = 300.0
REFRESH_S, SKEW_S = 86_400.0, 60.0
PATH = "/.well-known/mta-sts.txt"
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


class PolicyFound(NamedTuple):
    """policy: None if there is none that can be used. result, detail: why it could not be fetched, for reports.

    A detail without a result: it is unknown whether there is a policy, since DNS did not answer.
    """

    domain: str
    policy: Sts | None = None
    result: str = ""
    detail: str = ""


@dataclass(slots=True)
class _Kept:
    """fetched_s: UNIX time, as it is stored on disk. tried: monotonic time of the last failed fetch."""

    policy: Sts | None = None
    text: str = ""
    fetched_s: float = 0
    tried: float = float("-inf")
    result: str = ""
    detail: str = ""

    def good(self) -> bool:
        return self.policy is not None and time.time() < self.fetched_s + self.policy.max_age_s

    def old(self) -> bool:
        """Due for a refresh; also if it was fetched while the clock was ahead, as its age is then unknown."""
        age_s = time.time() - self.fetched_s
        return self.policy is not None and not -SKEW_S <= age_s <= min(REFRESH_S, self.policy.max_age_s / 2)


class StsPolicies:
    """folder: for the files. port: of the policy hosts."""

    def __init__(
        self, folder: Path, names: Names, contexts: TlsContexts, port: int = 443, barred: Barred = refusal
    ) -> None:
        self._barred = barred
        self._folder, self._names, self._contexts, self._port = folder, names, contexts, port
        self._known: OrderedDict[str, _Kept] = OrderedDict()
        self._fetching: dict[str, asyncio.Task[None]] = {}

    async def of(self, domain: str, now: float) -> PolicyFound:
        """now: monotonic seconds. Never raises."""
        name = _ascii(domain)
        if not name:
            return PolicyFound(domain)
        kept = self._kept(name)
        try:
            _, texts = await self._names.txt(f"_mta-sts.{name}", now)
            id = record_id(texts)
            silent = ""
        except NoRoute as error:
            id, silent = "", error.reply.text
        if id:
            await self._refresh(name, kept, id, now)
        if kept.good():
            return PolicyFound(domain, kept.policy)
        return PolicyFound(domain, None, kept.result, kept.detail) if id else PolicyFound(domain, detail=silent)

    async def _refresh(self, name: str, kept: _Kept, id: str, now: float) -> None:
        """Fetches a policy that is missing, out of date or old; callers that need no answer do not wait for it."""
        current = kept.policy is not None and kept.good() and kept.policy.id == id
        if (current and not kept.old()) or now < kept.tried + FAILURE_S:
            return
        task = self._fetching.get(name)
        if task is None:
            task = asyncio.ensure_future(self._fetch(name, kept, id, now))
            self._fetching[name] = task
            task.add_done_callback(lambda _: self._fetching.pop(name, None))
        if not current:
            await asyncio.shield(task)

    async def _fetch(self, name: str, kept: _Kept, id: str, now: float) -> None:
        host = f"mta-sts.{name}"
        try:
            addresses = await self._names.addresses(host, now)
            context = self._contexts.of(True)
            data = await https.get(
                host,
                self._port,
                PATH,
                addresses,
                context,
                kind="text/plain",
                bytes_max=POLICY_BYTES_MAX,
                barred=self._barred,
            )
            text = data.decode()
            kept.policy, kept.text = parse(name, id, text), text
        except (HttpsFailed, NoRoute, TlsFailed) as error:
            untrusted = isinstance(error, HttpsFailed) and error.untrusted
            kept.result = "sts-webpki-invalid" if untrusted else "sts-policy-fetch-error"
            kept.tried, kept.detail = now, str(error)[:200]
        except ValueError as error:
            kept.result, kept.tried, kept.detail = "sts-policy-invalid", now, str(error)[:200]
        else:
            kept.fetched_s, kept.tried, kept.result, kept.detail = time.time(), float("-inf"), "", ""
            self._write(name, kept)
            return
        log.warning("MTA-STS policy of %s: %s: %s", name, kept.result, kept.detail)

    # in memory and on disk

    def _kept(self, name: str) -> _Kept:
        kept = self._known.get(name)
        if kept is None:
            kept = self._known[name] = self._read(name)
            if len(self._known) > DOMAINS_MAX:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(name)
        return kept

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str) -> _Kept:
        try:
            row = json.loads(self._file(name).read_bytes())
            kept = _Kept(parse(name, row["id"], row["policy"]), row["policy"], float(row["fetched_s"]))
        except (OSError, ValueError, KeyError, TypeError):
            return _Kept()
        if kept.good():
            return kept
        with contextlib.suppress(OSError):
            self._file(name).unlink()
        return _Kept()

    def _write(self, name: str, kept: _Kept) -> None:
        if kept.policy is None:
            return
        row = {"id": kept.policy.id, "fetched_s": kept.fetched_s, "policy": kept.text}
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._file(name), json.dumps(row).encode(), suffix=f".{os.getpid()}")
        except OSError as error:
            log.warning(
                "MTA-STS policy of %s cannot be kept: %s; it is fetched again after a restart", name, cause(error)
            )


def _ascii(domain: str) -> str:
    """A-labels that are safe as a file name; "" for names without a policy: address literals, invalid names."""
    name = canonical(domain)
    return name if _NAME.fullmatch(name) and len(name) <= 200 else ""
