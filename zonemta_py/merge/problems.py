"""What is wrong with a template, and where; and why one message could not be made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TemplateProblem:
    """line, column: from 1; 0 where the whole file is meant. sentence: what is wrong and the remedy."""

    file: str
    line: int
    column: int
    sentence: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.sentence}"


class TemplateRefused(ValueError):
    """`problems`: at least one."""

    def __init__(self, problems: list[TemplateProblem]) -> None:
        self.problems = sorted(set(problems))
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        super().__init__(f"{self.problems[0]}{more}")


class RenderRefused(ValueError):
    """One recipient's message cannot be made from these fields; the sentence says why."""


class ToolMissing(RuntimeError):
    """A library of the extra [campaign] is not installed; the sentence says what to install."""
