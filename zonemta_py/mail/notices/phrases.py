"""The texts of notices in one language: TOML files of short texts with placeholders, the shipped ones and an operator's
own, which may have some of them only.

Failures: PhrasesError, one sentence that names file, text and remedy.
"""

from __future__ import annotations

import re
import string
import tomllib
from pathlib import Path
from typing import Any

KINDS = ("failed", "delayed", "relayed", "delivered")
ADVICE = ("unknown", "full", "closed", "moved", "domain", "size", "content", "refused")
TEXT_CHARACTERS_MAX = 2_000
ENGLISH = "en"
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")
_WHO = frozenset(("recipient", "age"))
KEYS: dict[str, frozenset[str]] = {
    "name": frozenset(),
    "signature": frozenset(("host",)),
    **{f"subject.{kind}": frozenset(("subject",)) for kind in KINDS},
    "text.opening": frozenset(("host", "date")),
    "text.about": frozenset(("subject",)),
    **{f"text.{what}": _WHO for what in (*KINDS, "expired")},
    "text.until": frozenset(("until",)),
    "text.server": frozenset(("server", "reply")),
    "text.reason": frozenset(("reply",)),
    **{f"closing.{kind}": frozenset(("host",)) for kind in KINDS},
    **{f"advice.{what}": frozenset() for what in ADVICE},
    **{f"units.{unit}": frozenset(("n",)) for unit in ("days", "hours", "minutes")},
}
"""Every text, and the placeholders that it may have."""


class PhrasesError(ValueError):
    """One sentence: file, text, what is wrong, what to do."""


class Phrases:
    """All texts of a language."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def say(self, key: str, **values: object) -> str:
        """The text of that key, filled in; "" if it says nothing."""
        return self._texts[key].format(**values)


def load(language: str, shipped: Path, own: Path | None = None) -> Phrases:
    """A language's texts: those in the folder `own`, what they lack as shipped, in English where that has none. Raises
    PhrasesError."""
    if own is not None and not own.is_dir():
        raise PhrasesError(f"{own}: there is no such folder of texts of notices; make it, or name another one")
    name = f"{language}.toml"
    files = [file for folder in (own, shipped) if folder is not None and (file := folder / name).is_file()]
    if not files or not LANGUAGE.fullmatch(language):
        known = ", ".join(sorted(file.stem for file in shipped.glob("*.toml")))
        place = f" and {own / name} does not exist" if own is not None else ""
        raise PhrasesError(f"there are no texts of notices in {language!r}{place}; use one of {known}, or write them")
    texts: dict[str, str] = {}
    for file in dict.fromkeys((shipped / f"{ENGLISH}.toml", *reversed(files))):
        texts |= _read(file)
    return Phrases(texts)


def _read(file: Path) -> dict[str, str]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise PhrasesError(f"{file} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PhrasesError(f"{file} is not TOML in UTF-8 ({error}); correct it") from None
    texts = dict(_flat(document))
    for key, text in texts.items():
        _check(f"{file}: {key}", key, text)
    return texts


def _flat(document: dict[str, Any]) -> list[tuple[str, Any]]:
    pairs = []
    for name, value in document.items():
        inner = _flat(value) if isinstance(value, dict) else [("", value)]
        pairs += [(f"{name}.{rest}" if rest else name, text) for rest, text in inner]
    return pairs


def _check(where: str, key: str, text: Any) -> None:
    if key not in KEYS:
        raise PhrasesError(f"{where}: there is no such text; those of notices are {', '.join(KEYS)}")
    if not isinstance(text, str) or len(text) > TEXT_CHARACTERS_MAX:
        raise PhrasesError(f"{where} must be a text of {TEXT_CHARACTERS_MAX:,} characters at most")
    shown = ", ".join(f"{{{name}}}" for name in sorted(KEYS[key])) or "none"
    try:
        fields = [field for field in string.Formatter().parse(text) if field[1] is not None]
    except ValueError:
        raise PhrasesError(f"{where} has a brace too many or too few; double one that is meant as such") from None
    for _, name, form, conversion in fields:
        if name not in KEYS[key] or form or conversion:
            raise PhrasesError(f"{where} has {{{name}}}; its placeholders are {shown}")
