"""Sends daily TLS reports (RFC 8460 3, 5) to domains that ask for them in DNS: by mail, or by POST over HTTPS.

Failures: none is raised; `send` returns what became of each report. A report that could not be sent is not tried again:
`zonemta tls report --send --day` can do that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, date, datetime
from urllib.parse import urlsplit

from zonemta_py.config import Config
from zonemta_py.delivery.dns.reachability import refusal
from zonemta_py.delivery.tls import https
from zonemta_py.delivery.tls.contexts import TlsContexts
from zonemta_py.delivery.tls.https import Barred, HttpsFailed
from zonemta_py.delivery.tls.mta_sts import Names
from zonemta_py.delivery.tls.policy import reporter_address
from zonemta_py.delivery.tls.reports import seen_on
from zonemta_py.logs.causes import cause
from zonemta_py.mail.classify import DeliveryError
from zonemta_py.mail.tls.reports import MAIL, MEDIA_TYPE, Reporter, TlsReport, addressees, mailbox, message, reports_for

HandIn = Callable[[str, list[str], bytes], Awaitable[None]]
"""Takes sender, recipients and message; raises OSError if it is not accepted."""


def reporter(config: Config) -> Reporter:
    address = reporter_address(config)
    name = config.server.name
    return Reporter(name, config.tls.report_organization or name, address, config.tls.report_contact or address)


async def uris(names: Names, domain: str) -> list[str]:
    """Where a domain wants its reports sent. Raises NoRoute."""
    _, texts = await names.txt(f"_smtp._tls.{domain}", time.monotonic())
    return addressees(texts)


async def send(
    report: TlsReport, names: Names, contexts: TlsContexts, hand_in: HandIn, barred: Barred = refusal
) -> list[str]:
    """What became of it: a sentence for each addressee, none if the domain asks for no reports."""
    try:
        wanted = await uris(names, report.domain)
    except DeliveryError as error:
        return [f"{report.domain}: not sent, {error.reply.text}"]
    said = [await _post(report, uri, names, contexts, barred) for uri in wanted if not uri.lower().startswith(MAIL)]
    boxes = [box for box in (mailbox(uri) for uri in wanted if uri.lower().startswith(MAIL)) if box]
    if boxes:
        said.append(await _mail(report, boxes, hand_in))
    return said


async def send_day(
    config: Config, day: date, names: Names, hand_in: HandIn, done: Collection[str] = (),
    note: Callable[[str], None] = lambda _: None,
) -> list[str]:  # fmt: skip
    """Sends all reports on a day (UTC), made from journal and archive; returns what became of each.

    done: domains whose report was already sent. note: called with each domain once its report has been sent.
    """
    contexts, sentences = TlsContexts(config.tls.ca_file), []
    reports = await asyncio.to_thread(lambda: reports_for(day, seen_on(config.folder, day), reporter(config)))
    for report in reports:
        if report.domain not in done:
            sentences += await send(report, names, contexts, hand_in, https.barred_by(config))
            note(report.domain)
    return sentences


async def _mail(report: TlsReport, boxes: list[str], hand_in: HandIn) -> str:
    where = ", ".join(boxes)
    try:
        await hand_in(report.reporter.address, boxes, message(report, boxes, datetime.now(UTC)))
    except OSError as error:
        return f"{report.domain}: not sent to {where}, {cause(error)}"
    return f"{report.domain}: handed in for {where}"


async def _post(report: TlsReport, uri: str, names: Names, contexts: TlsContexts, barred: Barred) -> str:
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port or 443
        addresses = await names.addresses(host, time.monotonic())
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        await https.post(
            host, port, path, addresses, contexts.of(True), kind=MEDIA_TYPE, data=report.compressed(), barred=barred
        )
    except (HttpsFailed, DeliveryError, ValueError) as error:
        return f"{report.domain}: not sent to {uri}, {error}"
    return f"{report.domain}: sent to {uri}"
