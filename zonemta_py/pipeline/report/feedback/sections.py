"""The parts of a page about what came back. Pure.

Promise: what nothing proves is in no rate and no plot; a rate is of what was delivered, and of fewer than 100 it is in
tables only. Nothing that has not come has a part, a column or a plot.
"""

from __future__ import annotations

from collections.abc import Sequence

from zonemta_py.pipeline.report import words
from zonemta_py.pipeline.report.feedback.rows import FEW, NAMES, TRACKED, Delivered, RatedGroup, ReturnCounts, Returned
from zonemta_py.pipeline.report.parts import OTHERS, PageSection, Plot, largest, rounded
from zonemta_py.pipeline.report.scope import HOUR_S, Kind, ReportScope
from zonemta_py.pipeline.report.tables import Table, Value

CAUSES_MAX = 10
_KINDS = {
    "complaint": "complaints", "bounce": "bounced later", "unsubscribe": "unsubscribes",
    "auto-reply": "automatic replies", "open": "opens", "click": "clicks", "challenge": "challenges",
    "delay": "delays told later", "other": "not understood",
}  # fmt: skip
_DID = {
    "complaints": "complained", "bounced_later": "bounced later", "unsubscribes": "unsubscribed",
    "auto_replies": "replied automatically", "opens": "opened", "clicks": "clicked",
}  # fmt: skip


def returned(facts: Returned, scope: ReportScope) -> list[PageSection]:
    """In the order of the page; none where nothing came back."""
    if not facts.kinds:
        return []
    parts = (
        _kinds(facts), _arrivals(facts, scope), _bounces(facts), _rates(facts, scope),
        _of_each("provider", facts.providers, facts), _campaigns(facts, scope),
    )  # fmt: skip
    return [part for part in parts if part]


def _kinds(facts: Returned) -> PageSection:
    rows: list[Sequence[Value]] = []
    for kind in facts.kinds:
        figure = next((name for name, title in NAMES.items() if title == _KINDS[kind.name]), "")
        rate = rounded(kind.genuine, facts.delivered.of(figure), 3) if figure else None
        rows.append((_KINDS[kind.name], kind.genuine, rate, kind.unproven))
    columns = ["what", "recipients", "of delivered %", "not genuine"]
    table = Table("came-back", "What came back, by kind", columns, rows)
    return PageSection("came-back", "What came back", _says(facts), [], table, open=True)


def _says(facts: Returned) -> str:
    all_, unproven = facts.delivered, sum(kind.unproven for kind in facts.kinds)
    did = [_did(name, facts.now, all_) for name in _came(facts.now) if name not in TRACKED]
    says = f"Of {words.counted(all_.all, 'recipient')} delivered, {_listed(did)}. " if did else ""
    tracked = [_did(name, facts.now, all_) for name in _came(facts.now) if name in TRACKED]
    says += f"Where that was tracked, {_listed(tracked)}. " if tracked else ""
    if facts.at_once:
        says += f"{words.counted(facts.at_once, 'open')} within 30 s of the delivery are left out: a proxy made them. "
    if unproven:
        says += f"Nothing proves {words.counted(unproven, 'report')}: not genuine, and in no rate and no plot. "
    return says + "All of it counts for the time at which its message was accepted, whenever it came."


def _arrivals(facts: Returned, scope: ReportScope) -> PageSection | None:
    from zonemta_py.pipeline.report.feedback import plots

    names, rows = _came(facts.now), facts.arrivals
    if not rows:
        return None
    width = {HOUR_S: "hour", 6 * HOUR_S: "6 hours"}.get(facts.step_s, "day")
    last = max(rows, key=lambda row: row.at)
    says = f"Per {width}, when it came; the last at {words.moment(last.at)}."
    table = Table(
        "came-back-when", f"What came back per {width}, UTC", ["time", *(NAMES[name] for name in names)],
        [(words.moment(row.at), *(getattr(row.came, name) for name in names)) for row in rows],
    )  # fmt: skip
    layers = {
        "reports": ("Reports", [name for name in plots.COLOURS if name in names and name not in TRACKED]),
        "tracked": ("Opens and clicks", [name for name in names if name in TRACKED]),
    }
    drawn = []
    for layer, (title, shown) in layers.items():
        those = [row for row in rows if any(getattr(row.came, name) for name in shown)]
        if len(those) > 1:
            figure = plots.arrivals(those, shown, scope.start // facts.step_s * facts.step_s, facts.step_s)
            shows = f"Stacked bars per {width}: {_listed([NAMES[name] for name in shown])}."
            drawn.append(Plot(f"came-back-{layer}-plot", figure, shows, title=title))
    wide = len(drawn) != 1
    return PageSection("came-back-when", "When it came back", says, drawn, table, wide=wide)


def _bounces(facts: Returned) -> PageSection | None:
    from zonemta_py.pipeline.report.feedback import plots

    if not facts.bounces:
        return None
    sums: dict[str, int] = {}
    for row in facts.bounces:
        sums[row.cause] = sums.get(row.cause, 0) + row.n
    order = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
    all_ = sum(sums.values())
    says = f"The most frequent: {order[0][0]}, {words.percent(order[0][1], all_)} of {all_:,} that bounced later."
    shown = order if len(order) <= CAUSES_MAX + 1 else order[:CAUSES_MAX]
    rest = all_ - sum(n for _, n in shown)
    shown = [*shown, (OTHERS, rest)] if rest else shown
    table = Table(
        "bounced-later", "Recipients that bounced later, by class", ["class", "provider", "campaign", "recipients"],
        [*sorted(facts.bounces, key=lambda row: (-row.n, row))],
    )  # fmt: skip
    plot = Plot("bounced-later-plot", plots.later(shown), f"Bars per class. {says}")
    return PageSection("bounced-later", "Why mail bounced later", says, [plot], table, wide=False)


def _rates(facts: Returned, scope: ReportScope) -> PageSection | None:
    from zonemta_py.pipeline.report.feedback import plots

    names, rows = _came(facts.now), facts.cohorts
    step = "hour" if scope.cohort_s == HOUR_S else "day"
    drawn = [
        Plot(
            f"rate-{name.replace('_', '-')}-plot", plots.rates(rows, name, scope.cohort_s),
            f"Bars per {step}: {NAMES[name]} in per cent of what was delivered.",
            title=NAMES[name].capitalize(),
        )
        for name in names
        if sum(row.delivered.of(name) >= FEW for row in rows) > 1
    ]  # fmt: skip
    if not drawn:
        return None
    says = (
        f"In per cent of what was delivered, of the mail accepted in each {step}; those with fewer than 100 are blank."
    )
    says += f" {_asked()}" if "complaints" in names else ""
    table = Table(
        "came-back-rates", f"What came back of the mail accepted in each {step}, UTC", ["time", *_columns(names)],
        [(words.moment(row.at), *_cells(row.delivered, row.came, names)) for row in rows],
    )  # fmt: skip
    return PageSection("came-back-rates", "Rates of what came back", says, drawn, table)


def _campaigns(facts: Returned, scope: ReportScope) -> PageSection | None:
    if scope.kind is Kind.CAMPAIGN or len(facts.campaigns) < 2:
        return None
    return _of_each("campaign", facts.campaigns, facts)


def _of_each(what: str, shares: Sequence[RatedGroup], facts: Returned) -> PageSection | None:
    from zonemta_py.pipeline.report.feedback import plots

    names = _came(facts.now)
    if not names or not shares:
        return None
    rows = sorted(shares, key=lambda row: (-row.came.complaints, -row.delivered.all, row.name))
    likely = [row for row in rows if row.delivered.all >= FEW]
    kept = largest([(row.name, row.delivered.all) for row in likely])
    shown = [row for row in likely if row.name in kept]
    worst = max(shown, key=lambda row: row.came.complaints / row.delivered.all, default=None)
    drawn, says = list[Plot](), "Nobody complained." if not facts.now.complaints else ""
    if worst and worst.came.complaints:
        says = f"Most complaints for what was delivered: {worst.name}, "
        says += f"{words.percent(worst.came.complaints, worst.delivered.all)}. {_asked()}"
        shows = f"Bars per {what}: complaints in per cent of what was delivered, with marks at 0.1 and 0.3%. {says}"
        drawn = [Plot(f"complaints-{what}-plot", plots.complaints(shown), shows)]
    table = Table(
        f"came-back-{what}", f"What came back, by {what}", [what, *_columns(names)],
        [(row.name, *_cells(row.delivered, row.came, names)) for row in rows],
    )  # fmt: skip
    title = f"What came back, by {what}"
    return PageSection(
        f"came-back-{what}", title, says or "Complaints are too few for a rate.", drawn, table, open=True
    )


def _columns(names: Sequence[str]) -> list[str]:
    return ["delivered", *(title for name in names for title in (NAMES[name], f"{NAMES[name]} %"))]


def _cells(delivered: Delivered, came: ReturnCounts, names: Sequence[str]) -> list[Value]:
    counts = [(getattr(came, name), delivered.of(name)) for name in names]
    return [delivered.all, *(cell for count, all_ in counts for cell in (count, rounded(count, all_, 3)))]


def _came(came: ReturnCounts) -> list[str]:
    """Fields that are not 0, in their order."""
    return [name for name in ReturnCounts._fields if getattr(came, name)]


def _did(name: str, came: ReturnCounts, delivered: Delivered) -> str:
    count = getattr(came, name)
    return f"{count:,} {_DID[name]} ({words.percent(count, delivered.of(name))})"


def _listed(texts: Sequence[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else "".join(texts)


def _asked() -> str:
    return "Mailbox providers ask for less than 0.1% complaints, and never 0.3%."
