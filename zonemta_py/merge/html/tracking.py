"""Links and a picture that say what a person did with a message, put into its HTML when it is made. Pure.

Links of `<a>` and `<area>` with http or https are replaced; not those to the listener itself (unsubscribes), in
comments, styles and scripts, with `data-track="no"`, or longer than TARGET_MAX; nor mailto:, tel:, #anchors and the
like. Promise: nothing else of the HTML changes, and what is too large or too odd stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape, unescape
from typing import NamedTuple

CHARACTERS_MAX = 512 * 1024
LINKS_MAX = 500
TARGET_MAX = 1_500
_TAG = re.compile(
    r"<!--(?:.*?-->|.*\Z)"
    r"|<(?P<raw>style|script|title|textarea)\b[^>]*(?:\Z|>(?:.*?</(?P=raw)\s*>|.*\Z))"
    r"""|<(?P<link>a|area)(?=\s)(?P<rest>(?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^'">])*+)(?:>|\Z)"""
    r"""|<[a-zA-Z/!](?:"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^'">])*+(?:>|\Z)""",
    re.DOTALL | re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"""(?P<name>[^\s"'<>/=]{1,100})(?:\s{0,20}=\s{0,20}(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"'=<>`]+)))?"""
)
_URL = re.compile(r"https?://[!#-;=?-\[\]_a-z~]+", re.IGNORECASE)
"""As RFC 3986 has it; with other characters a link stays."""


class Tracking(NamedTuple):
    """link: target → the URL that leads there; None: links stay. picture: URL of one, "" for none. ours: what the
    listener's own URLs begin with."""

    link: Callable[[str], str] | None
    picture: str
    ours: str


def tracked(html: str, tracking: Tracking) -> str:
    """The HTML with both."""
    if len(html) > CHARACTERS_MAX:
        return html
    if tracking.link is not None:
        html = _linked(html, tracking.link, tracking.ours)
    if tracking.picture:
        tag = f'<img src="{escape(tracking.picture)}" width="1" height="1" alt="" style="border:0">'
        at = html.lower().rfind("</body")
        html = html + tag if at < 0 else html[:at] + tag + html[at:]
    return html


def _linked(html: str, link: Callable[[str], str], ours: str) -> str:
    left = LINKS_MAX

    def changed(found: re.Match[str]) -> str:
        nonlocal left
        place = _target(found) if found["link"] and left else None
        if place is None:
            return found[0]
        begin, end = place
        if end - begin > 2 * TARGET_MAX:
            return found[0]
        target = unescape(found.string[begin:end]).strip()
        if not _URL.fullmatch(target) or len(target) > TARGET_MAX or target.startswith(f"{ours}/"):
            return found[0]
        left -= 1
        own = escape(link(target))
        if found.string[begin - 1] not in "\"'":
            own = f'"{own}"'
        return found[0][: begin - found.start()] + own + found[0][end - found.start() :]

    return _TAG.sub(changed, html)


def _target(found: re.Match[str]) -> tuple[int, int] | None:
    """Where the value of href is, of a tag that may be tracked."""
    place = None
    for one in _ATTRIBUTE.finditer(found.string, found.start("rest"), found.end("rest")):
        name, form = one["name"].lower(), next((form for form in ("double", "single", "bare") if one[form]), "")
        if name == "data-track" and form and one[form].lower() == "no":
            return None
        if name == "href" and form and place is None:
            place = one.span(form)
    return place
