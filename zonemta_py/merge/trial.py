"""Checks an untrusted template in a process of its own with limited resources: `python -m zonemta_py.merge.trial`.

A packed template comes by standard input; what is found goes to standard output. So a template that is expensive to
check costs only this process, and no one waits for it.
"""

from __future__ import annotations

import resource
import sys
from typing import Any, NamedTuple

import msgpack

MEMORY_BYTES = 512 * 1024 * 1024
"""Address space, of which it uses a tenth."""
CPU_S = 10


class TrialResult(NamedTuple):
    """problems: sentences with their places; if there are any, nothing else is known.

    wanted: name of a column that the template needs → where it stands. said: see `said.said`. author: who it is
    from, as the template writes it.
    """

    problems: list[str]
    wanted: dict[str, str]
    said: dict[str, str]
    author: str = ""

    def pack(self) -> bytes:
        return bytes(msgpack.packb(tuple(self)))

    @classmethod
    def unpack(cls, data: bytes) -> TrialResult:
        return cls(*msgpack.unpackb(data))


def look(packed: bytes) -> TrialResult:
    """The problems a sender would meet, and what the batches must supply."""
    from zonemta_py.merge.compile import compile, wanted
    from zonemta_py.merge.problems import TemplateRefused
    from zonemta_py.merge.said import said, unclear
    from zonemta_py.merge.source import TemplateSource

    try:
        source = TemplateSource.unpack(packed)
        if not source.prepared:
            return _bad("it is not prepared; create it with `zonemta campaign`, which prepares and packs it")
        compile(source)
        found = [str(problem) for problem in unclear(source)]
        return (
            TrialResult(found, {}, {})
            if found
            else TrialResult([], wanted(source), said(source), source.sender.content)
        )
    except TemplateRefused as refused:
        return TrialResult([str(problem) for problem in refused.problems], {}, {})
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:  # not what `pack` writes
        return _bad(f"is not a packed template ({str(error)[:200]}); pack a prepared one")


def _bad(sentence: str) -> TrialResult:
    return TrialResult([sentence], {}, {})


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> Any:
    _limit(resource.RLIMIT_CPU, CPU_S)
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    sys.stdout.buffer.write(look(sys.stdin.buffer.read()).pack())


if __name__ == "__main__":
    main()
