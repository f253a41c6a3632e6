"""A question before what cannot be undone, or is much."""

import sys

import typer

from zonemta_py.cli.terminal.errors import CommandError, Exit


def ask(sentence: str, question: str, instead: str = "") -> None:
    """sentence: what will be. instead: what else one may do where nobody can answer.

    Raises CommandError if the answer is no, or if nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise CommandError(Exit.USAGE, f"{sentence}; add --yes to do it without a question{instead}")
    if not typer.confirm(f"{sentence}. {question}", err=True):
        raise CommandError(Exit.OK, "nothing was changed")
