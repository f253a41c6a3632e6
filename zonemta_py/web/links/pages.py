"""Pages for people: what is said on them is ours, and how they look is a template's, ours or a tenant's.

A tenant's template is Jinja2 as templates of campaigns may use it (`merge.language`): sandboxed, with a budget of work.
It must print {{ content }}: heading, text and buttons, which work without a script. Where it cannot be used, the page
is ours, and the log says why. Words are those of the language somebody reads (RFC 9110 12.5.4). Failures: `check`
raises ConfigError with one sentence.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, meta
from markupsafe import Markup

from zonemta_py.config import Config, ConfigError
from zonemta_py.logs.causes import cause
from zonemta_py.merge.language import FUNCTIONS, Language
from zonemta_py.merge.problems import RenderRefused
from zonemta_py.merge.render import Part
from zonemta_py.merge.review import review
from zonemta_py.merge.source import Text

USUAL = "en"
_ACCEPT_MAX = 500


class PageTexts:
    """The texts of pages in one language. language: its tag."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language, self._texts = language, texts

    def __call__(self, name: str, **values: str) -> str:
        """That text with values in it. Raises KeyError."""
        return self._texts[name].format(**values)


@cache
def languages() -> dict[str, PageTexts]:
    """By language."""
    tables = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
    return {language: PageTexts(language, texts) for language, texts in tables.items()}


def wanted(accepted: str) -> PageTexts:
    """accepted: an Accept-Language field. Of languages with the same weight the first; English if there is none."""
    rows: list[tuple[float, int, str]] = []
    for number, one in enumerate(accepted[:_ACCEPT_MAX].split(",")):
        tag, _, weight = one.strip().lower().partition(";q=")
        try:
            rows.append((-float(weight or 1), number, tag.partition("-")[0]))
        except ValueError:
            continue
    for negative, _, language in sorted(rows):
        if negative < 0 and language in languages():
            return languages()[language]
    return languages()[USUAL]


log = logging.getLogger(__name__)
ENDING = ".html.j2"
DEFAULT = "default"
NAMES = frozenset({"content", "title", "language", "page", "tenant", "campaign"})
"""What a template may print."""
TEMPLATE_BYTES_MAX = 256 * 1024
_HERE = Path(__file__).parent
_OURS = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True)


class PageChoice(NamedTuple):
    """A row of the page of settings. name: of `mail.addresses.link.WIDENING`. state: of `leaving.State`."""

    name: str
    label: str
    state: str


class LinkPage(NamedTuple):
    """name: ask, nothing, done, settings, wrong, old, busy, none. address: as it is shown. more: where the settings
    are."""

    name: str
    words: PageTexts
    address: str = ""
    tenant: str = ""
    campaign: str = ""
    more: str = ""
    choices: tuple[PageChoice, ...] = ()
    saved: bool = False


class Pages:
    """templates: by tenant, DEFAULT for all others."""

    def __init__(self, templates: Mapping[str, Part]) -> None:
        self._templates = templates

    @classmethod
    def load(cls, folder: Path | None) -> Pages:
        """What cannot be used is logged, and left out."""
        found: dict[str, Part] = {}
        for file in _files(folder):
            try:
                found[file.name.removesuffix(ENDING)] = _template(file)
            except ConfigError as error:
                log.error("%s; its pages look like ours", error)
        return cls(found)

    def html(self, page: LinkPage) -> str:
        template = self._templates.get(page.tenant) or self._templates.get(DEFAULT)
        if template is not None:
            try:
                return _dressed(template, page)
            except RenderRefused as refused:
                log.error(
                    "the template of pages for tenant %s fails: %s; this page looks like ours", page.tenant, refused
                )
        return _OURS.get_template("page.html.j2").render(_values(page))


def check(config: Config) -> None:
    """Raises ConfigError for the first template that cannot be used."""
    folder = config.links.pages
    if folder is not None and not folder.expanduser().is_dir():
        raise ConfigError(f"links.pages: there is no folder {folder}; make it, or remove the key")
    for file in _files(folder):
        _template(file)


def shown(address: str) -> str:
    """An address in part, so that who was forwarded the mail does not read all of it."""
    local, _, domain = address.rpartition("@")
    return f"{local[:1]}…@{domain}" if local else "…"


def _files(folder: Path | None) -> list[Path]:
    return sorted(folder.expanduser().glob(f"*{ENDING}")) if folder is not None else []


def _template(file: Path) -> Part:
    """Raises ConfigError, also for one that fails on any of our pages."""
    try:
        content = file.read_bytes()[: TEMPLATE_BYTES_MAX + 1].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as UTF-8 ({cause(error)}); correct it") from None
    if len(content) > TEMPLATE_BYTES_MAX:
        raise ConfigError(f"{file}: is longer than {TEMPLATE_BYTES_MAX:,} bytes; shorten it")
    language = Language(autoescape=True)
    if found := review(Text(content, str(file)), language, None):
        raise ConfigError(str(found[0]))
    tree = language.parse(content)
    unknown = meta.find_undeclared_variables(tree) - NAMES - set(FUNCTIONS)
    if unknown:
        raise ConfigError(f"{file}: there is no {min(unknown)!r} here; known are {', '.join(sorted(NAMES))}")
    try:
        part = Part("html", language.template(language.code(tree)), [])
        for page in _trials():
            if _content(page) not in _dressed(part, page):
                raise ConfigError(f"{file}: does not print the whole content; add {{{{ content }}}} where it belongs")
    except (RenderRefused, TemplateError, SyntaxError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}") from None
    return part


def _trials() -> list[LinkPage]:
    usual = wanted("")
    choices = (PageChoice("campaigns", "x", "in"), PageChoice("all", "x", "out"))
    names = ("ask", "nothing", "done", "settings", "wrong", "old", "busy", "none")
    return [LinkPage(name, usual, "a…@b.example", "tenant", "campaign", "../p/x", choices) for name in names]


def _dressed(template: Part, page: LinkPage) -> str:
    """Raises RenderRefused."""
    return template.whole(_values(page))


def _values(page: LinkPage) -> dict[str, Any]:
    title = _title(page)
    return {
        "content": Markup(_content(page)), "title": title, "language": page.words.language, "page": page.name,
        "tenant": page.tenant, "campaign": page.campaign,
    }  # fmt: skip


def _title(page: LinkPage) -> str:
    return page.words(f"{'ask' if page.name == 'nothing' else page.name}_title")


def _content(page: LinkPage) -> str:
    return _OURS.get_template("content.html.j2").render({**page._asdict(), "page": page.name, "title": _title(page)})
