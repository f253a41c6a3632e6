"""What `zonemta doctor` finds: one line a thing."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """ok; note: not checked, or only worth knowing; warning: mail suffers from it; problem: it does not work so."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


class Diagnosis(NamedTuple):
    """about: what was looked at. words: how it is. remedy: "" where nothing has to be done."""

    level: Level
    about: str
    words: str
    remedy: str = ""


def ok(about: str, words: str) -> Diagnosis:
    return Diagnosis(Level.OK, about, words)


def note(about: str, words: str, remedy: str = "") -> Diagnosis:
    return Diagnosis(Level.NOTE, about, words, remedy)


def warning(about: str, words: str, remedy: str) -> Diagnosis:
    return Diagnosis(Level.WARNING, about, words, remedy)


def problem(about: str, words: str, remedy: str) -> Diagnosis:
    return Diagnosis(Level.PROBLEM, about, words, remedy)
