"""Figures and tables become one HTML page that needs nothing else: no network, no fonts, no second file. Pure.

Promise: what comes from mail (replies, campaigns, addresses) is text. Jinja2 escapes all of it, figures travel as JSON
in which no "<" is left, and a Content-Security-Policy names the two scripts of the page by their hashes and forbids all
others and every request: a text that got into the page as markup anyway could do nothing there. The same facts make
the same bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from zonemta_py.pipeline.report.headline import cards, compared, headline_table
from zonemta_py.pipeline.report.parts import Plot
from zonemta_py.pipeline.report.rows import Facts
from zonemta_py.pipeline.report.scope import ReportScope
from zonemta_py.pipeline.report.sections import sections
from zonemta_py.pipeline.report.tables import Table

_UNSTEADY = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_HERE = Path(__file__).parent


def page(facts: Facts, scope: ReportScope, made: str = "") -> str:
    """The page as text. made: when, for its foot; "" says nothing of it."""
    parts = [] if facts.empty else sections(facts, scope)
    plots = [plot for part in parts for plot in part.plots]
    library, own = (_library(), _text("page.js")) if plots else (("", ""), "")
    return _template().render(
        scope=scope,
        empty=facts.empty,
        compared=compared(facts, scope),
        cards=cards(facts, scope),
        headline=headline_table(facts, scope),
        sections=parts,
        figures={plot.id: Markup(_json(plot)) for plot in plots},
        style=Markup(_text("page.css")),
        library=Markup(library[0]),
        script=Markup(own),
        hashes=[library[1], _hash(own)] if plots else [],
        made=made,
    )


def tables(facts: Facts, scope: ReportScope) -> list[Table]:
    """All tables of the page, in its order."""
    return [] if facts.empty else [headline_table(facts, scope), *(part.table for part in sections(facts, scope))]


def _steadied(value: Any) -> Any:
    """Text without what would turn the direction of all that follows it, or is no character at all."""
    return _UNSTEADY.sub("\ufffd", value) if type(value) is str else value


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(_HERE)
    rules: dict[str, Any] = {"autoescape": True, "undefined": jinja2.StrictUndefined, "finalize": _steadied}
    return jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **rules).get_template("page.html.j2")


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _library() -> tuple[str, str]:
    """Plotly in gzip and base64, a page's largest part by far, which `page.js` unpacks; and its hash."""
    from plotly.offline import get_plotlyjs

    text = str(get_plotlyjs())
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode(), _hash(text)


def _hash(script: str) -> str:
    """As Content-Security-Policy Level 3, section 2.3.1 writes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(plot: Plot) -> str:
    """For a <script type="application/json">, which ends at the first "</script" whatever stands around it."""
    body = json.dumps(json.loads(plot.figure.to_json()), sort_keys=True, separators=(",", ":"))
    return body.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
