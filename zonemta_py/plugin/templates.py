"""The content hooks for merged mail: once for each template, before the queue has it, as its messages have one content.

The texts are shown as they are written, with a word in the place of each {{ … }} and {% … %} (`Node.words`), in
CRLF lines; images and attachments as they are sent. message_rewrite sees each part, message_analyze the whole before
that, message_store the body after it, then message_queue runs of the plugins that have one of these. Of the envelope,
which has no recipients, only its notes last: they are those of each message. Of headers nothing does (message_headers
and sender_headers change these, for each recipient).

Failures: `shown` raises TemplateStopped, with the place in the template; the verdict is a plugin's, PluginFailed for
one that fails. The caller checks what comes out, as it does with any template.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zonemta_py.mail.headers import Headers
from zonemta_py.mail.limits import CHUNK_BYTES
from zonemta_py.merge import header
from zonemta_py.merge.encoding import base64_bytes
from zonemta_py.merge.html.markup import Placeholders
from zonemta_py.merge.schedule_fields import is_to_us
from zonemta_py.merge.source import File, TemplateSource, Text
from zonemta_py.plugin.arguments import Info, Node, Session
from zonemta_py.plugin.calls import Round
from zonemta_py.plugin.encodings import decoded
from zonemta_py.plugin.mime import describe
from zonemta_py.plugin.pipes import Reader, Rewriting, finish, readers
from zonemta_py.plugin.verdicts import PluginFailed, Verdict

if TYPE_CHECKING:
    from zonemta_py.mail.envelope import Envelope
    from zonemta_py.plugin.host import Host

CONTENT = ("message_analyze", "message_rewrite", "message_store")
NEVER = frozenset(
    (
        "smtp_init", "smtp_connect", "smtp_sni", "smtp_auth", "smtp_mail_from", "smtp_rcpt_to", "smtp_data",
        "smtp_reset", "smtp_end",
    )
)  # fmt: skip
"""Hooks that merged mail does not meet, for it comes by HTTP."""


class TemplateStopped(Exception):
    """A plugin refuses a template, or fails at it. place: "text", "html", "images[logo]", "attachments[a.pdf]", or ""
    for all of it."""

    def __init__(self, place: str, verdict: Verdict) -> None:
        self.place, self.verdict = place, verdict
        said = getattr(verdict, "problem", "") or str(verdict)
        self.sentence = f"plugin {verdict.plugin}, hook {verdict.hook}: {said}"
        super().__init__(f"{place}: {self.sentence}" if place else self.sentence)


@dataclass(slots=True)
class Part:
    """A leaf of the message. wire: its body, in its transfer encoding. hidden: a text with words in it. number: of an
    image or attachment, from 0."""

    place: str
    node: Node
    wire: bytes
    hidden: str = ""
    number: int = -1

    def entity(self) -> bytes:
        return self.node.headers.build() + b"\r\n" + self.wire


def looked_at(host: Host) -> bool:
    """Whether any plugin wants to see templates; if not, leave them as they are."""
    return any(map(host.listens, CONTENT))


async def shown(host: Host, envelope: Envelope, session: Session | None, packed: bytes) -> bytes:
    """A prepared template as the plugins leave it; the same bytes, if they change nothing. Raises TemplateStopped."""
    source = given = TemplateSource.unpack(packed)
    words = Placeholders(text.content for text in _texts(source))
    parts, section = _parts(source, words), _section(source, words)
    before = _message(section, parts)
    begun: list[Reader] = []
    try:
        with _at(""):
            analysts = _readers(host, "message_analyze", envelope, begun)
            await _feed(analysts, before)
        for part in parts:
            with _at(part.place):
                source = await _rewritten(host, envelope, source, part, words)
        with _at(""):
            keepers = _readers(host, "message_store", envelope, begun)
            if keepers:
                await _feed(keepers, _message(section, parts).partition(b"\r\n\r\n")[2])
            await finish((*analysts, *keepers))
            await _conclude(host, envelope, Info(session, len(before), section))
    finally:
        for reader in begun:
            reader.abort()
    if envelope.notes:
        source = replace(source, notes=dict(envelope.notes))
    return packed if source == given else source.pack()


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except Verdict as verdict:
        raise TemplateStopped(place, verdict) from None


def _readers(host: Host, hook: str, envelope: Envelope, all_: list[Reader]) -> list[Reader]:
    made = readers(host.calls(hook), {"envelope": envelope})
    all_ += made
    return made


async def _feed(some: list[Reader], content: bytes) -> None:
    for at in range(0, len(content), CHUNK_BYTES):
        for reader in some:
            await reader.feed(content[at : at + CHUNK_BYTES])


async def _conclude(host: Host, envelope: Envelope, info: Info) -> None:
    """message_queue, where what the content hooks have found may be judged."""
    seen = {call.plugin for hook in CONTENT for call in host.calls(hook)}
    for call in host.calls("message_queue"):
        if call.plugin in seen:
            try:
                await call.run({"envelope": envelope, "info": info})
            except PluginFailed:
                if not call.passes:
                    raise


async def _rewritten(
    host: Host, envelope: Envelope, source: TemplateSource, part: Part, words: Placeholders
) -> TemplateSource:
    """The template with the part as plugins want it, which is also what the part has from then on."""
    written = bytearray()

    async def keep(block: bytes) -> None:
        written.extend(block)

    calls, rewriting, node = host.calls("message_rewrite"), Rewriting(keep), part.node
    if not calls:
        return source
    arguments = {"envelope": envelope, "node": node}
    round_ = Round(calls[0], arguments)
    for call in calls:
        await rewriting.ask(call, arguments, round_)
    if not rewriting.start():
        return source
    try:
        await rewriting.feed(part.wire)
        await rewriting.finish()
    finally:
        rewriting.abort()
    if (wire := bytes(written)) == part.wire:
        return source
    part.wire = wire
    names = ", ".join(call.plugin for call in calls)
    if part.number < 0:
        return _with_text(source, part, words, names)
    return await _with_file(source, part)


def _with_text(source: TemplateSource, part: Part, words: Placeholders, names: str) -> TemplateSource:
    """names: of the plugins that may have changed it. Raises PluginFailed."""
    text = getattr(source, part.place)
    assert isinstance(text, Text)
    try:
        content = words.show(part.hidden, part.wire.decode()).replace("\r\n", "\n")
    except UnicodeDecodeError:
        problem = "wrote what is not UTF-8, as its part was"
    except LookupError as lost:
        problem = f"lost, doubled or moved {str(lost.args[0])[:60]}, which decides what a message has"
    else:
        changed: dict[str, Any] = {part.place: replace(text, content=content)}
        return replace(source, **changed)
    raise PluginFailed(names, "message_rewrite", problem)


async def _with_file(source: TemplateSource, part: Part) -> TemplateSource:
    kind = part.place.partition("[")[0]
    files: list[File] = list(getattr(source, kind))
    node, _ = describe(part.node.headers, part.node.path, part.node.parents)
    content = b"".join([block async for block in decoded(node.encoding, _one(part.wire))])
    name = node.filename if kind == "attachments" and node.filename else files[part.number].name
    files[part.number] = File(name, node.content_type, content)
    changed: dict[str, Any] = {kind: tuple(files)}
    return replace(source, **changed)


async def _one(content: bytes) -> AsyncIterator[bytes]:
    if content:
        yield content


# -- the template as a message


def _texts(source: TemplateSource) -> list[Text]:
    heads = (source.subject, source.sender, source.reply_to, source.list_unsubscribe, source.text, source.html)
    return [text for text in (*heads, *(text for _, text in source.headers)) if text is not None]


def _section(source: TemplateSource, words: Placeholders) -> Headers:
    """Its header section, as far as it is the template's."""
    fields = [("From", source.sender), ("Reply-To", source.reply_to), ("Subject", source.subject)]
    fields += [("List-Unsubscribe", source.list_unsubscribe), *source.headers]
    made = Headers()
    for name, text in fields:
        if text is not None and not is_to_us(name):
            made.append(header.unstructured(name, words.hide(text.content)).removesuffix(b"\r\n"))
    made.append(b"MIME-Version: 1.0")
    return made


def _parts(source: TemplateSource, words: Placeholders) -> list[Part]:
    """In the places that they have in messages: mixed(related(alternative(text, html), images), attachments)."""
    path, parents = list[int](), list[str]()
    for kind, there in (("mixed", source.attachments), ("related", source.images)):
        if there:
            path.append(0)
            parents.append(f"multipart/{kind}")
    found = list[Part]()
    both = source.text is not None and source.html is not None
    for place in ("text", "html"):
        text: Text | None = getattr(source, place)
        if text is not None:
            own = [*path, len(found)] if both else path
            around = [*parents, "multipart/alternative"] if both else parents
            hidden = words.hide(text.content.replace("\n", "\r\n"))
            kind = "html" if place == "html" else "plain"
            section = [f"Content-Type: text/{kind}; charset=utf-8", "Content-Transfer-Encoding: 8bit"]
            node = _node(section, own, around)
            node.words = words.pattern
            found.append(Part(place, node, hidden.encode(), hidden))
    for number, one in enumerate(source.images):
        place, identity = f"images[{one.name}]", header.content_id(one.name)
        found.append(_file(one, place, number, _node_of(one, identity, [*path[:-1], number + 1], parents)))
    for number, one in enumerate(source.attachments):
        found.append(_file(one, f"attachments[{one.name}]", number, _node_of(one, "", [number + 1], parents[:1])))
    return found


def _file(one: File, place: str, number: int, node: Node) -> Part:
    return Part(place, node, base64_bytes(one.content), number=number)


def _node_of(one: File, identity: str, path: list[int], parents: list[str]) -> Node:
    """identity: the field Content-ID of an image."""
    disposition = "inline" if identity else "attachment"
    section = [header.media_type(one.kind), "Content-Transfer-Encoding: base64", identity]
    section.append(f"Content-Disposition: {disposition};\r\n {header.parameter('filename', one.name)}")
    return _node([line for line in section if line], path, parents)


def _node(section: list[str], path: list[int], parents: list[str]) -> Node:
    return describe(Headers([line.encode() for line in section]), tuple(path), tuple(parents))[0]


def _message(section: Headers, parts: list[Part]) -> bytes:
    """All of it."""
    texts = [part for part in parts if part.number < 0]
    body = _multipart("alternative", [part.entity() for part in texts]) if len(texts) > 1 else texts[0].entity()
    for kind, place in (("related", "images["), ("mixed", "attachments[")):
        if files := [part.entity() for part in parts if part.place.startswith(place)]:
            body = _multipart(kind, [body, *files])
    return section.build() + body


def _multipart(kind: str, entities: list[bytes]) -> bytes:
    boundary = f"=_template_{kind}"
    head = f'Content-Type: multipart/{kind}; boundary="{boundary}"\r\n\r\n'.encode()
    delimiter = f"--{boundary}\r\n".encode()
    return head + b"".join(delimiter + one + b"\r\n" for one in entities) + f"--{boundary}--\r\n".encode()
