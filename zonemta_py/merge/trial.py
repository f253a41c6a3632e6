"""Works on an untrusted template in a process of its own with limited resources: `python -m zonemta_py.merge.trial`
looks at it, `… prepare` makes it ready first, `… render` fills it in for some people.

A packed template (`render`: a RenderOrder) comes by standard input; a TrialResult (Rendered) goes to standard output.
So a template that is expensive costs only this process, and no one waits for it.
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
    from, as the template writes it. list_id: see `said.list_id`.
    """

    problems: list[str]
    wanted: dict[str, str]
    said: dict[str, str]
    author: str = ""
    prepared: bytes = b""
    """The template as it is stored, if it was to be prepared."""
    list_id: str = ""
    fixed: dict[str, str] | None = None
    """See `said.fixed`."""
    notes: dict[str, Any] | None = None
    """See `TemplateSource.notes`; None: there are none."""

    def pack(self) -> bytes:
        return bytes(msgpack.packb(tuple(self)))

    @classmethod
    def unpack(cls, data: bytes) -> TrialResult:
        return cls(*msgpack.unpackb(data))


class Person(NamedTuple):
    """Whom one message is for. fields: its values. files: [name, media type, content] beside the template's.
    identity: what no other message has; Message-ID and boundaries are made from it."""

    address: str
    fields: dict[str, str]
    files: list[tuple[str, str, bytes]]
    identity: str


class RenderOrder(NamedTuple):
    """template: packed and prepared. date: of the field Date. people: fields of `Person`."""

    template: bytes
    campaign: str
    date: str
    people: list[Person]

    def pack(self) -> bytes:
        return bytes(msgpack.packb(tuple(self)))

    @classmethod
    def unpack(cls, data: bytes) -> RenderOrder:
        template, campaign, date, people = msgpack.unpackb(data)
        return cls(template, campaign, date, [Person(*person) for person in people])


class Rendered(NamedTuple):
    """messages: one for each person, in their order. problems: index of a person → why there is none."""

    messages: list[bytes]
    problems: dict[int, str]

    def pack(self) -> bytes:
        return bytes(msgpack.packb(tuple(self)))

    @classmethod
    def unpack(cls, data: bytes) -> Rendered:
        return cls(*msgpack.unpackb(data, strict_map_key=False))


def prepare(packed: bytes) -> TrialResult:
    """As `look`, of a template that is not prepared; with the prepared one."""
    from zonemta_py.merge import compile
    from zonemta_py.merge.problems import TemplateRefused, ToolMissing
    from zonemta_py.merge.source import TemplateSource

    try:
        made = compile.prepare(TemplateSource.unpack(packed)).pack()
    except TemplateRefused as refused:
        return TrialResult([str(problem) for problem in refused.problems], {}, {})
    except ToolMissing as missing:
        return _bad(str(missing))
    return look(made)._replace(prepared=made)


def render(order: RenderOrder) -> Rendered:
    """Everybody's message."""
    from dataclasses import replace

    from zonemta_py.merge.compile import compile
    from zonemta_py.merge.problems import RenderRefused
    from zonemta_py.merge.source import File, TemplateSource

    template = compile(TemplateSource.unpack(order.template))
    found = Rendered([], {})
    for number, person in enumerate(order.people):
        try:
            files = tuple(File(*file) for file in person.files)
            own = replace(template, attachments=template.attachments + files) if files else template
            message = own.render(person.fields, person.address, order.campaign, order.date, person.identity)
        except RenderRefused as refused:
            found.problems[number] = str(refused)
            message = b""
        found.messages.append(message)
    return found


def look(packed: bytes) -> TrialResult:
    """The problems a sender would meet, and what the batches must supply."""
    from zonemta_py.merge.compile import compile, wanted
    from zonemta_py.merge.problems import TemplateRefused
    from zonemta_py.merge.schedule_fields import fixed, list_id, said, unclear
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
            else TrialResult(
                [],
                wanted(source),
                said(source),
                source.sender.content,
                list_id=list_id(source),
                fixed=fixed(source),
                notes=source.notes or None,
            )
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
    given = sys.stdin.buffer.read()
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "render":
        sys.stdout.buffer.write(render(RenderOrder.unpack(given)).pack())
    else:
        sys.stdout.buffer.write((prepare if what == "prepare" else look)(given).pack())


if __name__ == "__main__":
    main()
