"""Rows become plotly figures. Pure: the same rows make the same figures, to the byte.

Colours are told apart by colour-blind readers (after Okabe and Ito, 2008, somewhat darker) and stand out on white and
on black alike. Axes, grid and text get theirs from the page's style sheet, so that one figure serves the light scheme,
the dark one and paper. All text in a figure is escaped: plotly takes some of it as HTML.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from zonemta_py.pipeline.report import words
from zonemta_py.pipeline.report.rows import KINDS, Bin, Cause, Cell, Left, Moment, Pair, Tried, WarmDay

COLOURS = {"delivered": "#2b83ba", "deferred": "#e0a100", "bounced": "#d1495b", "blocked": "#8e5ea2"}
STATES = {
    "delivered": "#2b83ba", "waiting": "#e0a100", "bounced": "#d1495b", "held": "#8e5ea2", "removed": "#8a8f98",
    "deleted": "#5f6670",
}  # fmt: skip
ACCENT, MARK = "#2b83ba", "#d1495b"
PATTERNS = {"bounced": "/", "blocked": "x"}
_LOW = {"l": 8, "r": 8, "t": 6, "b": 8, "pad": 4}
"""Without a legend on top."""
_AXIS = {"automargin": True, "zeroline": False, "fixedrange": True}
_HATCH = {"fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.55)", "size": 6, "solidity": 0.18}
_BEYOND = 1.1
"""How far an axis of times goes on behind the longest one."""
FEW = 5
"""A share of fewer attempts is not meaningful."""
_LOWEST_PX = {"heat": 140, "secure": 104}
"""Below this plotly has no room for the labels of the axis: it leaves the bars 64 pixels."""
_TICKS_S = {
    0.01: "10 ms", 0.1: "0.1 s", 1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3600: "1 h", 21_600: "6 h",
    86_400: "1 day", 604_800: "1 week",
}  # fmt: skip


def over_time(moments: Sequence[Moment], step_s: int) -> go.Figure:
    """Attempts by how they ended, stacked, above the share of those that did not deliver."""
    figure = blank(height=420, hovermode="x unified")
    if moments:  # a step lasts until the next one, the last one too
        moments = [*moments, moments[-1]._replace(at=moments[-1].at + step_s)]
    times = [words.second(row.at) for row in moments]
    for kind in KINDS:
        counts = [getattr(row.attempts, kind) for row in moments]
        if any(counts):
            figure.add_scatter(
                x=times, y=counts, name=kind, stackgroup="all", mode="none", fillcolor=COLOURS[kind],
                line={"shape": "hv"}, hovertemplate="%{y:,}",
            )  # fmt: skip
    begins, share = _shares(moments, times)
    figure.add_scatter(
        x=begins, y=share, yaxis="y2", name="not delivered", mode="lines", connectgaps=False, showlegend=False,
        line={"color": MARK, "width": 1.5}, hovertemplate="%{y:.1f}%",
    )  # fmt: skip
    figure.add_annotation(
        text="share not delivered", xref="paper", yref="paper", x=0, y=0.29, xanchor="left", yanchor="bottom",
        showarrow=False,
    )  # fmt: skip
    width = {300: "5 min", 3600: "hour"}.get(step_s, "day")
    figure.update_layout(
        yaxis={"domain": [0.4, 1], "title": {"text": f"attempts per {width}"}},
        yaxis2={**_AXIS, "domain": [0, 0.28], "ticksuffix": "%", "rangemode": "tozero", "nticks": 4},
        xaxis={"anchor": "y2", **dates(times)},
    )
    return figure


def _shares(moments: Sequence[Moment], times: Sequence[str]) -> tuple[list[str], list[float | None]]:
    """Line through the steps that have a share: each from its beginning to its end, so that one alone is seen too."""
    at, share = list[str](), list[float | None]()
    for row, begin, end in zip(moments, times, times[1:], strict=False):
        if row.attempts.total >= FEW:
            at += (begin, end)
            share += [100 * row.attempts.trouble / row.attempts.total] * 2
        elif share and share[-1] is not None:
            at.append(begin)
            share.append(None)
    return at, share


def heat(cells: Sequence[Cell], providers: Sequence[str], hours: Sequence[int], of_day: bool) -> go.Figure:
    """Two layers, of which the page shows one: share of attempts that did not deliver, and attempts."""
    found = {(cell.provider, cell.hour): cell.attempts for cell in cells}
    grid = [[found.get((name, hour)) for hour in hours] for name in providers]
    share = [[100 * t.trouble / t.total if t and t.total >= FEW else None for t in row] for row in grid]
    counts = [[t.total if t else None for t in row] for row in grid]
    said = [[f"{t.trouble:,} of {t.total:,} attempts not delivered" if t else "" for t in row] for row in grid]
    columns = [f"{hour // 3600:02}:00" for hour in hours] if of_day else [words.moment(hour) for hour in hours]
    alone = len(hours) < 2  # on an axis of dates, one column has no width
    figure = blank(height=max(_LOWEST_PX["heat"], 60 + 26 * len(providers)), margin=_LOW)
    for name, values, colour, suffix in (("share", share, "209,73,91", "%"), ("attempts", counts, "43,131,186", "")):
        figure.add_heatmap(
            z=values, x=columns, y=safe(words.labels(providers)), name=name, customdata=said, xgap=1, ygap=1, zmin=0,
            zmax=max((value for row in values for value in row if value is not None), default=0) or 1,
            colorscale=[[0, f"rgba({colour},0.07)"], [0.5, f"rgba({colour},0.55)"], [1, f"rgba({colour},1)"]],
            colorbar={"thickness": 10, "outlinewidth": 0, "ticksuffix": suffix, "len": 1, "nticks": 5},
            visible=name == "share", hovertemplate="<b>%{y}</b>, %{x}<br>%{customdata}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        xaxis={"nticks": 7, "tickangle": 0, "showgrid": False, "type": "category" if of_day or alone else "date"},
        yaxis={"autorange": "reversed", "showgrid": False, "type": "category"},
    )
    return figure


def latency(bins: Sequence[Bin], marks: Sequence[tuple[str, float]]) -> go.Figure:
    """Recipients by time from acceptance to delivery, on a logarithmic axis. marks: ("median", seconds) …, rising."""
    figure = blank(height=320, bargap=0.03, showlegend=False)
    figure.add_bar(
        x=[(row.low_s + row.high_s) / 2 for row in bins], width=[row.high_s - row.low_s for row in bins],
        y=[row.n for row in bins], marker={"color": ACCENT},
        customdata=[f"{words.span(row.low_s)} to {words.span(row.high_s)}" for row in bins],
        hovertemplate="%{customdata}<br>%{y:,} recipients<extra></extra>",
    )  # fmt: skip
    low, high = _ends(bins, marks)
    for at, (name, seconds) in enumerate(marks):
        right = math.log(seconds / low) > 0.6 * math.log(high / low)
        figure.add_vline(x=seconds, line={"color": MARK, "width": 1.5, "dash": ("solid", "dash", "dot")[at % 3]})
        figure.add_annotation(
            x=_log10(seconds), xref="x", y=1.2 - 0.085 * at, yref="paper", text=f"{name} {words.span(seconds)}",
            showarrow=False, xanchor="right" if right else "left", xshift=-4 if right else 4, yanchor="top",
        )  # fmt: skip
    ticks = {value: text for value, text in _TICKS_S.items() if low / 1.01 <= value <= high * 1.01}
    if len(ticks) < 2:
        ticks = {at: words.span(at) for at in (low, high / _BEYOND)}
    figure.update_layout(
        margin={"t": 70},
        xaxis={
            "type": "log", "range": [_log10(low) - 1e-6, _log10(high)], "tickvals": list(ticks),
            "ticktext": list(ticks.values()), "title": {"text": "time to delivery"},
        },
        yaxis={"title": {"text": "recipients"}},
    )  # fmt: skip
    return figure


def causes(rows: Sequence[Cause], last: str) -> go.Figure:
    """Attempts that were not delivered, per class of the reply, the most frequent on top, `last` below all."""
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.name] = totals.get(row.name, 0) + row.n
    names = sorted(totals, key=lambda name: (name == last, -totals[name], name))
    figure = blank(height=110 + 26 * len(names), barmode="stack")
    shown = dict(zip(names, safe(words.labels(names)), strict=True))
    for kind in KINDS[1:]:
        counts = {row.name: row.n for row in rows if row.kind == kind}
        if counts:
            figure.add_bar(
                y=[shown[name] for name in names], x=[counts.get(name, 0) for name in names], name=kind,
                orientation="h", marker=_marker(kind), hovertemplate=f"%{{y}}<br>%{{x:,}} {kind}<extra></extra>",
            )  # fmt: skip
    add_totals(figure, [shown[name] for name in names], [totals[name] for name in names])
    figure.update_layout(yaxis={"autorange": "reversed", "showgrid": False}, xaxis={"title": {"text": "attempts"}})
    return figure


def secure(pairs: Sequence[Pair]) -> go.Figure:
    """Share of delivered attempts that were encrypted, per provider, the worst on top."""
    sums: dict[str, tuple[int, int]] = {}
    for row in pairs:
        tls, all_ = sums.get(row.provider, (0, 0))
        sums[row.provider] = tls + row.secure, all_ + row.attempts.delivered
    names = sorted((name for name in sums if sums[name][1]), key=lambda name: (sums[name][0] / sums[name][1], name))
    shares = [100 * sums[name][0] / sums[name][1] for name in names]
    figure = blank(height=max(_LOWEST_PX["secure"], 50 + 22 * len(names)), showlegend=False, margin=_LOW)
    figure.add_bar(
        y=safe(words.labels(names)), x=shares, orientation="h", marker={"color": ACCENT}, cliponaxis=False,
        text=[words.percent(*sums[name]) for name in names], textposition="outside",
        customdata=[f"{sums[name][0]:,} of {sums[name][1]:,}" for name in names],
        hovertemplate="%{y}<br>%{customdata} deliveries encrypted<extra></extra>",
    )  # fmt: skip
    figure.update_layout(
        xaxis={"range": [0, 132], "tickvals": [0, 50, 100], "ticktext": ["0%", "50%", "100%"]},
        yaxis={"autorange": "reversed", "showgrid": False},
    )
    return figure


def tried(rows: Sequence[Tried], most: int) -> go.Figure:
    """Recipients that needed more than one attempt, by how many; those of `most` and above are one bar."""
    figure = blank(height=320, barmode="stack", bargap=0.25)
    last = max((row.attempts for row in rows), default=2)
    names = [str(count) if count < most else f"{most}+" for count in range(2, last + 1)]
    for state, colour in STATES.items():
        counts = {row.attempts: row.n for row in rows if row.state == state and row.attempts > 1}
        if counts:
            figure.add_bar(
                x=names, y=[counts.get(at, 0) for at in range(2, last + 1)], name=state,
                marker={"color": colour, "pattern": {"shape": PATTERNS.get(state, ""), **_HATCH}},
                hovertemplate=f"%{{y:,}} {state} after %{{x}} attempts<extra></extra>",
            )  # fmt: skip
    figure.update_layout(
        xaxis={"type": "category", "title": {"text": "attempts so far"}, "showgrid": False},
        yaxis={"title": {"text": "recipients"}},
    )
    return figure


def warm(days: Sequence[WarmDay]) -> go.Figure:
    """What one source sent to one provider each day, under the cap of its warm-up."""
    figure = blank(height=260, bargap=0.15)
    dates = [words.day(row.day) for row in days]
    figure.add_bar(x=dates, y=[row.sent for row in days], name="sent", marker={"color": ACCENT})
    if any(row.cap is not None for row in days):
        figure.add_scatter(
            x=dates, y=[row.cap for row in days], name="cap", mode="lines+markers", connectgaps=False,
            line={"color": MARK, "width": 2, "dash": "dash", "shape": "hvh"}, marker={"symbol": "line-ew", "size": 1},
        )  # fmt: skip
    figure.update_layout(xaxis={"type": "date", "showgrid": False, "nticks": 6}, yaxis={"rangemode": "tozero"})
    return figure


def burn_down(rows: Sequence[Left], ends: int | None) -> go.Figure:
    """Recipients waiting and delivered; dotted to the time at which none will wait."""
    figure = blank(height=340, hovermode="x unified")
    times = [words.second(row.at) for row in rows]
    for name, colour, fill in (("delivered", COLOURS["delivered"], None), ("waiting", COLOURS["deferred"], "tozeroy")):
        figure.add_scatter(
            x=times, y=[getattr(row, name) for row in rows], name=name, mode="lines", fill=fill,
            line={"color": colour, "width": 2}, fillcolor="rgba(224,161,0,0.25)" if fill else None,
        )  # fmt: skip
    if ends is not None and rows:
        figure.add_scatter(
            x=[times[-1], words.second(ends)], y=[rows[-1].waiting, 0], name="estimated", mode="lines",
            line={"color": COLOURS["deferred"], "width": 2, "dash": "dot"}, hovertemplate="%{y:,}",
        )  # fmt: skip
    axis = dates([*times, words.second(ends)] if ends is not None else times)
    figure.update_layout(xaxis=axis, yaxis={"title": {"text": "recipients"}, "rangemode": "tozero"})
    return figure


def dates(times: Sequence[str]) -> dict[str, Any]:
    """An axis from the first to the last of them, with no parts of a second at its ticks."""
    axis: dict[str, Any] = {"type": "date", "tickformatstops": [{"dtickrange": [None, 1000], "value": "%H:%M:%S"}]}
    return axis | {"range": [times[0], times[-1]]} if times and times[0] < times[-1] else axis


def blank(**layout: Any) -> go.Figure:
    """Without plotly's own looks: the page has the rest."""
    figure = go.Figure()
    figure.update_layout(
        template=None, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"size": 12},
        margin={"l": 8, "r": 8, "t": 34, "b": 8, "pad": 4}, xaxis=_AXIS, yaxis=_AXIS | {"separatethousands": True},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        hoverlabel={"bgcolor": "#20242b", "bordercolor": "#20242b", "font": {"color": "#f4f5f7", "size": 12}},
        separators=".,", dragmode=False,
    )  # fmt: skip
    return figure.update_layout(**layout)


def _marker(kind: str) -> dict[str, Any]:
    """Failures differ by hatching too, for readers and printers without colours."""
    return {
        "color": COLOURS[kind], "line": {"width": 0},
        "pattern": {"shape": PATTERNS.get(kind, ""), **_HATCH},
    }  # fmt: skip


def add_totals(figure: go.Figure, names: list[str], totals: list[int]) -> None:
    """A number at the end of each stack."""
    figure.add_scatter(
        y=names, x=totals, mode="text", text=[f" {count:,}" for count in totals], textposition="middle right",
        showlegend=False, hoverinfo="skip", cliponaxis=False,
    )  # fmt: skip
    figure.update_xaxes(range=[0, 1.3 * max(totals, default=1)])


def _ends(bins: Sequence[Bin], marks: Sequence[tuple[str, float]]) -> tuple[float, float]:
    lows = [row.low_s for row in bins] + [seconds for _, seconds in marks]
    highs = [row.high_s for row in bins] + [seconds for _, seconds in marks]
    return min(lows, default=1.0), max(highs, default=10.0) * _BEYOND


def _log10(seconds: float) -> float:
    return round(math.log10(seconds), 6)


def safe(names: Sequence[str]) -> list[str]:
    return [html.escape(name, quote=False) for name in names]  # plotly knows no &quot;
