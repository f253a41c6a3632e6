"""Bounces and delays that are written for people alone: whom they name, and what the server said about each.

There are hundreds of forms, and most servers invent their own; so this reads what they have in common. Addresses are
looked for where a failed recipient stands: at the beginning of a line, behind a reply code, behind "recipient" and
such; those of the sender and of who helps are not meant. What follows an address, up to the next, is about it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from zonemta_py.mail.feedback.addresses import addresses, is_service, spelt_out
from zonemta_py.mail.feedback.diagnostic import has_code, implied, reply_of, temporary
from zonemta_py.mail.feedback.page import DIALOGUE, Place, TextPage, is_instead
from zonemta_py.mail.feedback.vocabulary import DELAYS, FAILURES, REASONS
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.reading import read as meaning
from zonemta_py.mail.vocabulary.matcher import says
from zonemta_py.mail.vocabulary.spelling import folded

RECIPIENTS_MAX = 100
TEXT_CHARACTERS_MAX = 16_384
_SAID_CHARACTERS_MAX = 2_000

_OF_SENDER = re.compile(
    r"(?:after |\[|our |>>> ?)(mail[_ ]from|ehlo|helo)\b|(sender) was rejected|(my name) was rejected", re.IGNORECASE
)
"""Before a reply: it was said of the sender, or of our name, and not of the recipient."""
_EMPTY_WORDS = re.compile(
    r"\.\.\. (?:service unavailable|remote protocol error|unknown mailer error \d*|can(?:'t|not) create output)\s*$",
    re.IGNORECASE,
)
"""With these a mail system passes on what the line before says."""
_TITLE = re.compile(
    r"(?:delivery status notification|undelivered mail|returned mail: see|failure notice)", re.IGNORECASE
)
"""Such a subject says of the failure that it is one."""
_PARENT = re.compile(
    r"\((?:ultimately )?(?:generated|expanded) from:? <?([^\s<>()]{1,64}@[^\s<>()]{1,255}?)>?\)", re.IGNORECASE
)
_REPORTER = re.compile(
    r"(?:\bhost:? |\bserver |\bwhile talking to |\bsmtp server <|\bremote-?mta:? <?(?:dns; ?)?|\bsystem: )"
    r"<?([a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){1,8})",
    re.IGNORECASE,
)


_ADDRESS = re.compile(r"[^\s<>@]{1,64}@[^\s<>@]{1,255}")
_CLAUSE = re.compile(r"(?<=[.:;,!،؛؟।])\s+|\n(?![ \t]*[a-z])|(?<=[。：，])")
_COURTESY_WORDS_MAX = 14
_WORD = re.compile(r"[^\W\d_]{2,}")


_FATE_CHARACTERS_MAX = 300
_NAME_OF_FIELD = re.compile(r"^\W{0,8}[^\W\d_]{1,20}\s{0,3}[:：]\s*$", re.MULTILINE)
_ARRIVED = re.compile(
    r"\b(?:delivered|relayed|expanded|accepted|success\w*|succeeded|ok|zugestellt|erfolgreich|remis|livré|distribué"
    r"|entregad[oa]|entregue|consegnat[oa]|bezorgd|afgeleverd|dostarczon\w{0,2}|доставлен\w{0,2}|levererat|levererad|leveret"
    r"|levert|toimitettu|doručen\w?|kézbesítve|livrat|teslim edildi|παραδόθηκε|250|2\.[01567]\.\d{1,2})\b"
    r"|送達|配信済|已送达|已送達|投递成功|전송됨|전달됨"
)
_DENIED = re.compile(
    r"\b(?:not|never|un\w+able|no|nicht|non|pas|não|nao|niet|nie|не|inte|ikke|ei|ne|nem|nu|değil|edilemedi|but|failed"
    r"|fehlgeschlagen|échec|error|fehler|erreur)\b|n't\b|未|没|失敗|失败"
)
_LATER = re.compile(
    r"\b(?:delayed|deferred|retrying|will (?:be )?retr(?:y|ied)|still trying|queued for|verzögert"
    r"|zurückgestellt|différée?|aplazado|adiado|differito|uitgesteld|vertraagd"
    r"|opóźnion\w|отложен\w|försenad|forsinket|viivästy\w+|odloženo|späterer)\b"
)
_TEMPORARY = re.compile(r"(?<![\d.])4\d\d(?![\d.])[ -]|(?<![\d.])4\.[0-7]\.\d")
_PERMANENT = re.compile(r"(?<![\d.])5\d\d(?![\d.])|(?<![\d.])5\.[0-7]\.\d")


class Clues(NamedTuple):
    """What else is known of a report. failed: recipients that a field names. sender: addresses that are the sender's;
    at_home: domains, too. sent_to: whom the enclosed original was for. subject, reporter: of the report."""

    failed: list[str]
    sender: frozenset[str]
    at_home: frozenset[str]
    sent_to: list[str]
    subject: str
    reporter: str


class Told(NamedTuple):
    """What a text says of one recipient."""

    recipient: str
    reply: Reply
    reporter: str
    quoted: bool
    """As of `Found`."""
    fate: str = ""
    """Where those of one report differ: "delivered", "delay" or "bounce" by what is said of this one; "" unsaid."""


def read_text(text: str, clues: Clues) -> list[Told]:
    """For each recipient that the text, without the original, is about. If it names none, of recipient ""."""
    if "@" not in text and not has_code(text) and ("@" in clues.subject or has_code(clues.subject)):
        text = f"{clues.subject}\n\n{text}"
    if "@" not in text and not clues.sent_to and (hidden := spelt_out(text)):
        clues = clues._replace(failed=clues.failed or hidden[:1])
    page = TextPage(text[:TEXT_CHARACTERS_MAX])
    places = _others(page.places(clues.sender), clues)
    if not clues.failed and all(_at_home(address, clues) for _, address, _ in places):
        titled = (one for one in addresses(clues.subject) if one.lower() not in clues.sender)
        clues = clues._replace(failed=[one for one in titled if not (places and _at_home(one, clues))][:1])
    places = places or [place for place in page.places(frozenset()) if place[2] == 2] or _only(page, clues)
    recipients = _recipients(places, clues, text)[:RECIPIENTS_MAX] or [""]
    whole = page.through_code(0, len(page.lines))
    if len(_words(_ADDRESS.sub("", whole))) < 2:
        lines = [] if _TITLE.match(clues.subject) else [clues.subject, *(line for line in page.lines if line.strip())]
        whole = "\n".join(lines or [whole])[:_SAID_CHARACTERS_MAX]
    count = len({*map(str.lower, recipients), *(one.lower() for _, one, likely in places if likely == 2)})
    told = [_told(recipient, count, places, page, whole, clues) for recipient in recipients]
    return told if clues.failed or len(told) < 2 else _by_fate(told, recipients, places, page)


def _by_fate(told: list[Told], recipients: list[str], places: list[Place], page: TextPage) -> list[Told]:
    """A report of several may say that it has reached some of them, and is still tried for others."""
    words = [_beside(recipient.lower(), places, page) for recipient in recipients]
    fates = [fate_of(one) for one in words]
    if len(set(fates)) < 2 or not {"delivered", "delay"} & set(fates):
        return told
    return [_fated(*one) for one in zip(told, fates, words, strict=True)]


def _fated(told: Told, fate: str, said: str) -> Told:
    if fate == "delivered":
        return told._replace(fate=fate, reply=Reply(250, "", said[:_FATE_CHARACTERS_MAX].strip()))
    return told._replace(
        fate=fate,
        reply=implied(reply_of(said)) if fate == "bounce" and told.reply.code < 500 and not told.quoted else told.reply,
    )


def _beside(name: str, places: list[Place], page: TextPage) -> str:
    """What is said of one of several: in its line, the rest of its paragraph, or what stands above them."""
    own = next((number for number, address, likely in places if likely > 0 and address.lower() == name), None)
    if own is None:
        return ""
    if len({address.lower() for number, address, _ in places if number == own}) > 1:
        return page.beside(own, name)
    later = (number for number, address, _ in places if number > own and address.lower() != name)
    end = page.led(own, next(later, len(page.lines)))
    lines = list(takewhile(str.strip, page.lines[own : max(end, own + 1)]))
    said = "\n".join(lines)
    return said if _words(_NAME_OF_FIELD.sub("", _ADDRESS.sub("", said))) else page.heading(own)


def fate_of(said: str) -> str:
    """ "delivered", "delay" or "bounce" where words that are about one recipient say so plainly; else ""."""
    words = " ".join(_ADDRESS.sub(" ", said[:_FATE_CHARACTERS_MAX]).lower().split())
    given_up = _TEMPORARY.search(words)  # "452 try again later" was said to who has given up
    if _LATER.search(words) or (says(words, DELAYS) and not given_up):
        return "" if _PERMANENT.search(words) else "delay"
    if given_up:
        return "bounce"
    if _PERMANENT.search(words) or says(words, FAILURES) or _DENIED.search(words):
        return "bounce"
    arrived = _ARRIVED.search(words)
    if _reasons(words) and not (arrived and arrived[0] == "relayed"):  # no relay is one
        return "bounce"
    return "delivered" if arrived else ""


def _at_home(address: str, clues: Clues) -> bool:
    """Whether it is at the sender's own domains."""
    return address.rpartition("@")[2].lower() in clues.at_home


def _only(page: TextPage, clues: Clues) -> list[Place]:
    """The only address that is not the sender's, wherever it stands."""
    named = {
        address.lower(): (number, address, 0)
        for number, line in enumerate(page.lines)
        for address in addresses(line)
        if address.lower() not in clues.sender
        and not _at_home(address, clues)
        and not is_instead(line.partition(address)[0])
    }
    return list(named.values()) if len(named) == 1 and not clues.sent_to else []


def _others(places: list[Place], clues: Clues) -> list[Place]:
    """Without addresses at the sender's own domains, if there are others that may be meant."""
    others = [place for place in places if not _at_home(place[1], clues)]
    return others if any(likely >= 0 for _, _, likely in others) else places


def _whole(places: list[Place], clues: Clues, text: str) -> str:
    """Whom the original was for, where the text names them over the end of a line; "" if it does not."""
    for one in clues.sent_to if len(clues.sent_to) == 1 else ():
        parts = [address.lower() for _, address, _ in places]
        if one.lower() not in parts and any(part in one.lower() for part in parts):
            return one if one.lower() in "".join(text.lower().split()) else ""
    return ""


def _recipients(places: list[Place], clues: Clues, text: str) -> list[str]:
    if clues.failed:
        return clues.failed
    whole = _whole(places, clues, text)
    if whole:
        return [whole]
    best = max((likely for _, _, likely in places), default=0)
    here = _at_reporter(places, clues.reporter, best)
    if here:
        return [here]
    chosen = list({address.lower(): address for _, address, likely in places if likely == best}.values())
    if best <= 0:
        known = {address.lower() for address in clues.sent_to}
        return [address for address in chosen if address.lower() in known] or clues.sent_to[:1] or chosen[:1]
    return chosen


def _at_reporter(places: list[Place], reporter: str, best: int) -> str:
    """The only mailbox at the reporter's own domain, where what looks like the recipient is elsewhere: the address to
    which somebody has moved."""
    domains = {address.rpartition("@")[2].lower() for _, address, likely in places if likely == best}
    named = (address for _, address, likely in places if likely >= 0)
    here = list({one.lower(): one for one in named if one.lower().endswith(f"@{reporter}")}.values())
    return here[0] if len(here) == 1 and reporter not in domains and not is_service(here[0]) else ""


def _told(recipient: str, count: int, places: list[Place], page: TextPage, whole: str, clues: Clues) -> Told:
    name = recipient.lower()
    own = [number for number, address, likely in places if likely > 0 and address.lower() == name]
    end = _end(own[0], name, places) if own else 0
    segment = page.through_code(own[0], page.led(own[0], end) if end else len(page.lines)) if own else ""
    if count > 1 and own and _reasons(own_words := page.beside(own[0], recipient)):
        segment = f"{recipient}\n{own_words}"
    elif count > 1 and own and not _telling(_ADDRESS.sub("", segment)) and _telling(heading := page.heading(own[0])):
        segment = heading
    said = _final(_said(own, count, segment, whole, page))
    reply, host, quoted = _reply(said, clues.subject)
    if len(_words(said.replace(recipient, ""))) < 2 and not reply.text.strip(" -<>:"):
        reply = Reply(reply.code, reply.enhanced, clues.subject)
    if (of := _OF_SENDER.search(f"{said}\n{segment}")) and "in reply to" not in reply.text:
        command = "HELO" if of[3] or (of[1] or "")[1:].lower() in ("elo", "hlo") else "MAIL FROM"
        reply = Reply(reply.code, reply.enhanced, f"{reply.text} (in reply to {command} command)")
    parent = _PARENT.search(segment)
    if parent and (not clues.sent_to or parent[1].lower() in {address.lower() for address in clues.sent_to}):
        recipient = parent[1]
    return Told(_unprefixed(recipient, clues), reply, host or clues.reporter, quoted)


def _unprefixed(recipient: str, clues: Clues) -> str:
    """As it was written to, where qmail has put its virtual domain's name before it: "23-ann@example.net"."""
    meant = clues.sent_to[0] if len(clues.sent_to) == 1 else ""
    return meant if meant and recipient.lower().endswith(f"-{meant.lower()}") else recipient


def _end(start: int, name: str, places: list[Place]) -> int:
    """The next line that names another recipient, 0 if none does."""
    best = max(likely for number, address, likely in places if number == start and address.lower() == name)
    others = (number for number, address, likely in places if likely >= best and address.lower() != name)
    return next((number for number in others if number > start), 0)


def _final(said: str) -> str:
    """Of a log of several attempts, from the one on that was final."""
    lines = said.split("\n")
    coded = [number for number, line in enumerate(lines) if has_code(line)]
    if len(coded) < 2 or not temporary(lines[coded[0]]):
        return said
    last = next((number for number in coded if not temporary(lines[number])), 0)
    return "\n".join(lines[last:])


def _said(own: list[int], count: int, segment: str, whole: str, page: TextPage) -> str:
    """The words about a recipient: a line of the dialogue that names it, what follows its name, or all there is."""
    quoted = next((number for number in own if page.coded(number)), None)
    if quoted is not None and (dialogue := DIALOGUE.match(page.lines[quoted])):
        before = page.lines[quoted - 1] if quoted else ""
        if _EMPTY_WORDS.search(page.lines[quoted]) and len(_words(before)) > 1:
            return before if has_code(before) else f"{dialogue[0]} {before}"
        return page.paragraph(quoted)
    if has_code(segment) or (count > 1 and len(_words(_ADDRESS.sub("", segment))) > 1):
        return segment
    if has_code(whole) or not _words(_ADDRESS.sub("\n", segment).partition("\n")[2]):
        return whole
    return segment if count > 1 or _reasons(segment) else whole


@lru_cache(maxsize=4)
def _reply(said: str, subject: str) -> tuple[Reply, str, bool]:
    """What was said, the host that said it, whether a code is quoted; often the same of many recipients."""
    host, found = _REPORTER.search(said), reply_of(_reason(said))
    return implied(found, f"{said} {subject}"), host[1] if host else "", bool(found.code)


def _reason(said: str) -> str:
    """Without clauses that only tell that it failed, where others tell why: rules go by all words."""
    if has_code(said):
        return said
    telling = " ".join(clause for clause in _CLAUSE.split(said) if clause.strip() and not _courtesy(clause))
    return telling if len(_words(_ADDRESS.sub("", telling))) > 1 else said


@lru_cache(maxsize=64)
def _telling(text: str) -> bool:
    """Whether it says more than that it failed."""
    return has_code(text) or any(map(_tells, _CLAUSE.split(text)))


def _tells(clause: str) -> bool:
    words = _words(clause)
    return bool(words) and not _courtesy(clause) and (len(words) > 1 or _reasons(clause))


def _reasons(text: str) -> bool:
    """Whether it says why, to the rules' vocabulary."""
    return _kind(_ADDRESS.sub("@", _reason(text))) not in ("", "policy")


@lru_cache(maxsize=64)
def _kind(text: str) -> str:
    """The class that the rules' vocabulary reads in it; often the same of many recipients."""
    return meaning(folded(text), 0, "", "report").kind


def _courtesy(clause: str) -> bool:
    """Whether it says that it failed, and neither why nor anything else."""
    words = " ".join(_ADDRESS.sub("", clause).lower().split())
    if not says(words, FAILURES) or says(words, REASONS) or any(map(str.isdigit, words)):
        return False
    if len(words.split()) > _COURTESY_WORDS_MAX:  # so long a sentence tells more, in whatever language
        return False
    return _kind(words) in ("", "policy")


def _words(text: str) -> list[str]:
    return _WORD.findall(text)
