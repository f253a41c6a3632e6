"""The parts of a page: what a plot shows in a sentence, the plot, and the table behind it. Pure.

Promise: too many names become the largest ones and "others", in plots only; tables have all. Sections
without data are left out; only the attempts over time are always there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from zonemta_py.pipeline.report import words
from zonemta_py.pipeline.report.feedback.sections import returned
from zonemta_py.pipeline.report.parts import OTHERS, PageSection, Plot, largest, rounded
from zonemta_py.pipeline.report.rows import NO_PROVIDER, AttemptCounts, Bin, Cause, Cell, Facts, WarmDay
from zonemta_py.pipeline.report.scope import DAY_S, HOUR_S, Kind, ReportScope
from zonemta_py.pipeline.report.tables import Table

CAUSES_MAX, CURVES_MAX, ATTEMPTS_MAX = 10, 6, 10
BINS_PER_DECADE = 8


def sections(facts: Facts, scope: ReportScope) -> list[PageSection]:
    """In the order of the page."""
    parts: Iterable[PageSection | None] = (
        _burn_down(facts) if scope.kind is Kind.CAMPAIGN else None,
        _over_time(facts, scope),
        _heat(facts, scope),
        _trouble(facts),
        _domains(facts),
        _causes(facts),
        _replies(facts),
        *returned(facts.returned, scope),
        _latency(facts),
        _tried_again(facts),
        _secure(facts),
        _warm(facts),
    )
    return _without_gaps([part for part in parts if part])


def _without_gaps(parts: list[PageSection]) -> list[PageSection]:
    """Narrow parts stand in twos; one that is left alone becomes wide."""
    for at, part in enumerate(parts):
        before = sum(1 for _ in takewhile(lambda one: not one.wide, reversed(parts[:at])))
        alone = at + 1 == len(parts) or parts[at + 1].wide
        if not part.wide and before % 2 == 0 and alone:
            parts[at] = replace(part, wide=True)
    return parts


def _over_time(facts: Facts, scope: ReportScope) -> PageSection:
    from zonemta_py.pipeline.report import plots

    width = {300: "5 minutes", HOUR_S: "hour", DAY_S: "day"}[scope.step_s]
    peak = max(facts.moments, key=lambda row: row.attempts.total, default=None)
    all_ = facts.now.attempts
    failed = words.percent(all_.trouble, all_.total)
    says = f"{words.counted(all_.total, 'attempt')}, of which {failed} were not delivered."
    if peak and peak.attempts.total:
        says += f" Most came at {words.moment(peak.at)}: {peak.attempts.total:,} in one {width}."
        says = says.replace("in one 5 minutes", "in 5 minutes")
    table = Table(
        "over-time", f"Attempts per {width}, UTC", ["time", *AttemptCounts._fields],
        [(words.moment(row.at), *row.attempts) for row in facts.moments],
    )  # fmt: skip
    figure = plots.over_time(facts.moments, scope.step_s)
    plot = Plot("over-time-plot", figure, f"Stacked bars of attempts per {width}. {says}")
    return PageSection("over-time", "Deliverability over time", says, [plot], table)


def _heat(facts: Facts, scope: ReportScope) -> PageSection | None:
    from zonemta_py.pipeline.report import plots

    if not facts.cells:
        return None
    names, cells = _largest(facts.cells)
    worst = max(
        (cell for cell in cells if cell.attempts.total >= plots.FEW),
        key=lambda cell: cell.attempts.trouble / cell.attempts.total,
        default=None,
    )
    says = "Hours with fewer than 5 attempts are left blank."
    if worst and worst.attempts.trouble:
        share = words.percent(worst.attempts.trouble, worst.attempts.total)
        says = f"The worst hour: {worst.provider} at {_hour(worst.hour, scope)}, {share} not delivered. {says}"
    low, high = (0, DAY_S) if scope.by_hour_of_day else (scope.start // HOUR_S * HOUR_S, scope.end)
    if any(cell.provider == NO_PROVIDER for cell in facts.cells):
        says += f" What goes to a smart host is among {NO_PROVIDER}; the table of domains says for whom it is."
    hours = range(low, high, HOUR_S)
    table = Table(
        "provider-hour", "Attempts per provider and hour, UTC", ["provider", "hour", *AttemptCounts._fields],
        [(cell.provider, _hour(cell.hour, scope), *cell.attempts) for cell in facts.cells],
    )  # fmt: skip
    figure = plots.heat(cells, names, hours, scope.by_hour_of_day)
    switch = [("share", "Share not delivered"), ("attempts", "Attempts")]
    plot = Plot("provider-hour-plot", figure, f"Heat map of provider by hour. {says}", switch=switch)
    title = "Providers by hour of the day" if scope.by_hour_of_day else "Providers by hour"
    return PageSection("provider-hour", title, says, [plot], table)


def _trouble(facts: Facts) -> PageSection | None:
    if not facts.pairs:
        return None
    rows = sorted(facts.pairs, key=lambda row: (-row.attempts.trouble, -row.attempts.total, row.source, row.provider))
    first = rows[0]
    says = "Nothing was refused or deferred."
    if first.attempts.trouble:
        says = (
            f"Most trouble: {first.source} at {first.provider}, {words.counted(first.attempts.trouble, 'attempt')} of "
            f"{first.attempts.total:,} not delivered ({words.percent(first.attempts.trouble, first.attempts.total)})."
        )
    columns = ["source", "provider", "not delivered %", "attempts", *AttemptCounts._fields, "TLS %"]
    table = Table(
        "source-provider", "Sources and providers, most trouble first", columns,
        [
            (
                row.source, row.provider, rounded(row.attempts.trouble, row.attempts.total), row.attempts.total,
                *row.attempts, rounded(row.secure, row.attempts.delivered),
            )
            for row in rows
        ],
        bar="not delivered %",
    )  # fmt: skip
    return PageSection("source-provider", "Where the trouble is", says, [], table, open=True)


def _domains(facts: Facts) -> PageSection | None:
    if not facts.domains:
        return None
    rows = [
        (
            row.name,
            row.recipients,
            row.delivered,
            row.bounced,
            row.removed,
            row.deleted,
            row.waiting,
            rounded(row.bounced, row.recipients),
        )
        for row in facts.domains
    ]
    first = facts.domains[0]
    share = words.percent(first.recipients, facts.now.recipients)
    says = f"Most recipients are at {first.name}: {first.recipients:,}, {share} of all."
    columns = ["domain", "recipients", "delivered", "bounced", "removed", "deleted", "waiting", "bounced %"]
    table = Table("domains", "Recipients by domain, largest first", columns, rows, bar="bounced %")
    return PageSection("domains", "Where recipients are", says, [], table, open=True)


def _causes(facts: Facts) -> PageSection | None:
    from zonemta_py.pipeline.report import plots

    if not facts.causes:
        return None
    sums: dict[str, int] = {}
    for row in facts.causes:
        sums[row.name] = sums.get(row.name, 0) + row.n
    order = sorted(sums, key=lambda name: (-sums[name], name))
    share = words.percent(sums[order[0]], sum(sums.values()))
    says = f"The most frequent: {order[0]}, {share} of {sum(sums.values()):,} attempts that were not delivered."
    kept = order if len(order) <= CAUSES_MAX + 1 else order[:CAUSES_MAX]
    shown = [row if row.name in kept else Cause(OTHERS, row.kind, row.n) for row in facts.causes]
    rows = sorted(facts.causes, key=lambda row: (-row.n, row))
    table = Table("classes", "Attempts not delivered, by class of reply", ["class", "kind", "attempts"], rows)
    plot = Plot("classes-plot", plots.causes(_summed(shown), OTHERS), f"Bars per class of reply. {says}")
    return PageSection("classes", "Why mail was refused", says, [plot], table, wide=False)


def _replies(facts: Facts) -> PageSection | None:
    if not facts.said:
        return None
    rows = sorted(facts.said, key=lambda row: (-row.n, row.cause, row.shape))
    says = "Replies that differ only in addresses and numbers count as one; one of them is shown."
    table = Table(
        "replies", "Replies, most frequent first", ["attempts", "reply", "class", "kind"],
        [(row.n, row.example, row.cause, row.kind) for row in rows],
    )  # fmt: skip
    return PageSection("replies", "What servers replied", says, [], table, open=True, wide=False)


def _latency(facts: Facts) -> PageSection | None:
    from zonemta_py.pipeline.report import plots

    if not facts.latency or facts.now.median_s is None:
        return None
    now = facts.now
    found = [("median", now.median_s), ("p95", now.p95_s), ("p99", now.p99_s)]
    marks = [(name, seconds) for name, seconds in found if seconds is not None]
    says = "Half of what was delivered arrived within {}; 95% within {}; 99% within {}.".format(
        *(words.span(seconds) for _, seconds in marks)
    )
    bins = _coarse(facts.latency)
    table = Table("latency", "Recipients by time to delivery", ["from s", "to s", "recipients"], bins)
    plot = Plot("latency-plot", plots.latency(bins, marks), f"Histogram on a logarithmic axis. {says}")
    return PageSection("latency", "Time to delivery", says, [plot], table, wide=False)


def _tried_again(facts: Facts) -> PageSection | None:
    from zonemta_py.pipeline.report import plots

    rows = [row for row in facts.tried if row.attempts]
    if not rows:
        return None
    once = sum(row.n for row in rows if row.attempts == 1)
    all_ = sum(row.n for row in rows)
    says = f"{words.percent(once, all_)} of recipients needed one attempt so far; "
    says += "the plot shows the others." if once < all_ else "none needed another."
    table = Table("retries", "Recipients by attempts so far", ["attempts", "state", "recipients"], sorted(facts.tried))
    plot = Plot("retries-plot", plots.tried(rows, ATTEMPTS_MAX), f"Bars per number of attempts. {says}")
    return PageSection("retries", "Retries", says, [plot] if once < all_ else [], table, wide=False)


def _secure(facts: Facts) -> PageSection | None:
    from zonemta_py.pipeline.report import plots

    delivered = sum(row.attempts.delivered for row in facts.pairs)
    if not delivered:
        return None
    tls = sum(row.secure for row in facts.pairs)
    says = f"{words.percent(tls, delivered)} of deliveries were encrypted."
    kept = largest([(row.provider, row.attempts.total) for row in facts.pairs])
    shown = [row if row.provider in kept else row._replace(provider=OTHERS) for row in facts.pairs]
    rows = [(row.source, row.provider, row.attempts.delivered, row.secure) for row in sorted(facts.pairs)]
    columns = ["source", "provider", "delivered", "encrypted"]
    table = Table("tls", "Deliveries that were encrypted", columns, rows)
    plot = Plot("tls-plot", plots.secure(shown), f"Bars per provider. {says}")
    return PageSection("tls", "Encryption", says, [plot], table, wide=False)


def _warm(facts: Facts) -> PageSection | None:
    from zonemta_py.pipeline.report import plots

    if not facts.warm:
        return None
    curves: dict[tuple[str, str], list[WarmDay]] = {}
    for row in sorted(facts.warm, key=lambda row: (row.source, row.provider, row.day)):
        curves.setdefault((row.source, row.provider), []).append(row)
    order = sorted(curves, key=lambda pair: (-sum(row.sent for row in curves[pair]), pair))[:CURVES_MAX]
    says = f"Recipients a day against the cap of the day, {words.counted(len(curves), 'source and provider', 'pairs')}"
    says += f"; the {CURVES_MAX} largest are shown." if len(curves) > CURVES_MAX else "."
    drawn = [
        Plot(
            f"warm-{at}-plot", plots.warm(curves[pair]),
            f"Bars of recipients a day under the line of the cap, {_pair(pair)}.", title=_pair(pair),
        )
        for at, pair in enumerate(order)
    ]  # fmt: skip
    rows = [(r.source, r.provider, words.day(r.day), r.sent, r.cap) for pair in sorted(curves) for r in curves[pair]]
    table = Table("warm-up", "Recipients a day and caps", ["source", "provider", "day", "sent", "cap"], rows)
    return PageSection("warm-up", "Warm-up of new sources", says, drawn, table)


def _burn_down(facts: Facts) -> PageSection | None:
    from zonemta_py.pipeline.report import plots

    if not facts.left:
        return None
    last = facts.left[-1]
    says = f"Nothing has been waiting since {words.moment(last.at)}."
    if last.waiting:
        says = f"{words.counted(last.waiting, 'recipient')} of {last.accepted:,} are still waiting; "
        says += (
            f"at the present rate, none will be by {words.moment(facts.ends)}."
            if facts.ends
            else "nothing is being delivered now."
        )
    table = Table(
        "burn-down", "Recipients of the campaign, UTC", ["time", "accepted", "delivered", "waiting"],
        [(words.second(row.at), row.accepted, row.delivered, row.waiting) for row in facts.left],
    )  # fmt: skip
    plot = Plot("burn-down-plot", plots.burn_down(facts.left, facts.ends), f"Recipients waiting over time. {says}")
    return PageSection("burn-down", "Burn-down", says, [plot], table)


def _hour(at: int, scope: ReportScope) -> str:
    return f"{at // HOUR_S:02}:00" if scope.by_hour_of_day else words.moment(at)


def _pair(pair: tuple[str, str]) -> str:
    return " → ".join(pair)


def _largest(cells: Sequence[Cell]) -> tuple[list[str], list[Cell]]:
    """Providers that are shown, and the cells with all others as one."""
    kept = largest([(cell.provider, cell.attempts.total) for cell in cells])
    sums: dict[tuple[str, int], AttemptCounts] = {}
    for cell in cells:
        key = (cell.provider if cell.provider in kept else OTHERS, cell.hour)
        sums[key] = sums.get(key, AttemptCounts()).plus(cell.attempts)
    names = kept if all(cell.provider in kept for cell in cells) else [*kept, OTHERS]
    return names, [Cell(*key, attempts) for key, attempts in sums.items()]


def _summed(rows: Sequence[Cause]) -> list[Cause]:
    sums: dict[tuple[str, str], int] = {}
    for row in rows:
        sums[row.name, row.kind] = sums.get((row.name, row.kind), 0) + row.n
    return [Cause(*key, count) for key, count in sums.items()]


def _coarse(bins: Sequence[Bin]) -> list[Bin]:
    """Wider bins, equally wide on the logarithmic axis, without gaps."""
    sums: dict[int, int] = {}
    for row in bins:
        at = math.floor(math.log10(math.sqrt(row.low_s * row.high_s)) * BINS_PER_DECADE)
        sums[at] = sums.get(at, 0) + row.n
    edges = {at: 10 ** (at / BINS_PER_DECADE) for at in range(min(sums), max(sums) + 2)}
    return [
        Bin(round(edges[at], 6), round(edges[at + 1], 6), sums.get(at, 0)) for at in range(min(sums), max(sums) + 1)
    ]
