"""Plots of what came back, as the other `plots`: the same rows make the same figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from zonemta_py.pipeline.report import plots, words
from zonemta_py.pipeline.report.feedback.rows import FEW, MARKS, NAMES, Arrival, Cohort, RatedGroup, ReturnCounts

COLOURS = {
    "bounced_later": "#8e5ea2", "complaints": "#d1495b", "unsubscribes": "#e0a100", "auto_replies": "#8a8f98",
    "opens": "#2b83ba", "clicks": "#1f9e89",
}  # fmt: skip
_HEADROOM = 1.2
CROWDED = 2.0
"""Per cent."""


def arrivals(rows: Sequence[Arrival], figures: Sequence[str], start: int, step_s: int) -> go.Figure:
    """Stacked bars of what came back in each step; the axis begins at `start`."""
    figure = plots.blank(height=320, barmode="stack", bargap=0)
    for name in figures:
        if any(getattr(row.came, name) for row in rows):
            figure.add_bar(
                x=[words.second(row.at + step_s // 2) for row in rows], width=step_s * 1000,
                y=[getattr(row.came, name) for row in rows], name=NAMES[name],
                marker={"color": COLOURS[name], "line": {"width": 0}},
                customdata=[words.moment(row.at) for row in rows],
                hovertemplate=f"from %{{customdata}}<br>%{{y:,}} {NAMES[name]}<extra></extra>",
            )  # fmt: skip
    ends = [words.second(at) for at in (min([start, *(row.at for row in rows)]), _end(rows, step_s))]
    figure.update_layout(xaxis=plots.dates(ends), yaxis={"title": {"text": "recipients"}, "rangemode": "tozero"})
    return figure


def rates(rows: Sequence[Cohort], name: str, step_s: int) -> go.Figure:
    """Bars: the share of what was delivered, of the mail accepted in each step that has FEW or more."""
    shown = [row for row in rows if row.delivered.of(name) >= FEW]
    figure = plots.blank(
        height=220, bargap=0, showlegend=False, margin={"t": 12, "r": 40 if name == "complaints" else 8}
    )
    shares = [_share(row.came, row.delivered.of(name), name) for row in shown]
    figure.add_bar(
        x=[words.second(row.at + step_s // 2) for row in shown], width=step_s * 1000 * 0.92, y=shares,
        marker={"color": COLOURS[name], "line": {"width": 0}},
        customdata=[
            f"{words.moment(row.at)}<br>{getattr(row.came, name):,} of {row.delivered.of(name):,}" for row in shown
        ],
        hovertemplate="%{customdata}: %{y:.2f}%<extra></extra>",
    )  # fmt: skip
    highest = max(shares, default=0)
    if name == "complaints":
        highest = max(highest, MARKS[-1])
        for at, mark in enumerate(MARKS):
            beside = {"x": 1, "xanchor": "left", "yanchor": "middle"}
            figure.add_hline(y=mark, line=_mark(at), annotation=_named(mark, highest) | beside)
    ends = [words.second(at) for at in (shown[0].at, shown[-1].at + step_s)] if shown else []
    top = highest * _HEADROOM or 1
    figure.update_layout(xaxis=plots.dates(ends), yaxis={"ticksuffix": "%", "range": [0, top], "nticks": 5})
    return figure


def complaints(rows: Sequence[RatedGroup]) -> go.Figure:
    """Complaints in per cent of what was delivered, the highest on top, and the marks."""
    order = sorted(rows, key=lambda row: (-_share(row.came, row.delivered.all, "complaints"), row.name))
    shares = [_share(row.came, row.delivered.all, "complaints") for row in order]
    figure = plots.blank(height=max(140, 80 + 24 * len(order)), showlegend=False, margin={"t": 24})
    figure.add_bar(
        y=plots.safe(words.labels([row.name for row in order])), x=shares, orientation="h", cliponaxis=False,
        marker={"color": COLOURS["complaints"], "line": {"width": 0}}, textposition="outside",
        text=[words.percent(row.came.complaints, row.delivered.all) for row in order],
        customdata=[f"{row.came.complaints:,} of {row.delivered.all:,}" for row in order],
        hovertemplate="%{y}<br>%{customdata} complained<extra></extra>",
    )  # fmt: skip
    most = max([*shares, MARKS[-1]])
    for at, mark in enumerate(MARKS):
        above = {"yanchor": "bottom", "y": 1}
        figure.add_vline(x=mark, line=_mark(at), annotation=_named(mark, most) | above)
    figure.update_layout(
        xaxis={"range": [0, 1.45 * most], "ticksuffix": "%", "nticks": 6},
        yaxis={"autorange": "reversed", "showgrid": False},
    )
    return figure


def later(sums: Sequence[tuple[str, int]]) -> go.Figure:
    """Recipients that bounced later, by class."""
    names = plots.safe(words.labels([name for name, _ in sums]))
    figure = plots.blank(height=max(140, 70 + 26 * len(names)), showlegend=False, margin={"t": 6})
    figure.add_bar(
        y=names, x=[n for _, n in sums], orientation="h",
        marker={"color": COLOURS["bounced_later"], "line": {"width": 0}},
        hovertemplate="%{y}<br>%{x:,} bounced later<extra></extra>",
    )  # fmt: skip
    plots.add_totals(figure, names, [n for _, n in sums])
    figure.update_layout(yaxis={"autorange": "reversed", "showgrid": False}, xaxis={"title": {"text": "recipients"}})
    return figure


def _share(came: ReturnCounts, delivered: int, name: str) -> float:
    return float(100 * getattr(came, name) / delivered) if delivered else 0.0


def _end(rows: Sequence[Arrival], step_s: int) -> int:
    return max((row.at for row in rows), default=0) + step_s


def _mark(at: int) -> dict[str, object]:
    return {"color": plots.MARK, "width": 1.5, "dash": ("dot", "dash")[at]}


def _named(mark: float, highest: float) -> dict[str, object]:
    """Where the axis goes so far that they would stand on each other, the last alone has its name."""
    crowded = highest > CROWDED and mark != MARKS[-1]
    return {"text": "" if crowded else f"{mark}%", "font": {"size": 11}}
