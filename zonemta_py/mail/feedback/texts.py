"""Bounces and delays that are written for people alone: whom they name, and what the server said about each.

There are hundreds of forms, and most servers invent their own; so this reads what they have in common. Addresses are
looked for where a failed recipient stands: at the beginning of a line, behind a reply code, behind "recipient" and
such; those of the sender and of who helps are not meant. What follows an address, up to the next, is about it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zonemta_py.mail.feedback.addresses import addresses
from zonemta_py.mail.feedback.diagnostic import has_code, implied, reply_of
from zonemta_py.mail.feedback.vocabulary import BOILERPLATE, HELPERS, NAMING, says
from zonemta_py.mail.reply import Reply

RECIPIENTS_MAX = 100
LINES_MAX = 400
LINE_CHARACTERS_MAX = 1_000
_SAID_CHARACTERS_MAX = 2_000

_BEGIN = re.compile(
    r"^[\s>*•|+-]*(?:<<<|>>>)?\s*(?:[245]\d\d[- ](?:[245]\.\d{1,2}\.\d{1,3} )?)?"
    r"[\"'<\[(«“]{0,3}(?:mailto:|smtp:|rfc822; ?)?",
    re.IGNORECASE,
)
"""What may stand before an address that begins a line: bullets, quotes, a reply code."""
_FIELD = re.compile(
    r"^\W{0,8}(?:from|sender|reply-to|return-path|message-id|x-[\w-]{1,40}|to|cc|subject|von|an|de|para)\s?:",
    re.IGNORECASE,
)
_SENDERS = re.compile(
    r"(?:mail from|original sender|sender address|envelope-from|your message from|from address)\W", re.IGNORECASE
)
_DIALOGUE = re.compile(r"^[\s>]*(?:<<<|>>>|[245]\d\d[- ]|while talking|\.\.\. while)", re.IGNORECASE)
_OF_SENDER = re.compile(
    r"(?:after |\[|our |>>> ?)(mail[_ ]from|ehlo|helo)\b|(sender) was rejected|(my name) was rejected", re.IGNORECASE
)
"""Before a reply: it was said of the sender, or of our name, and not of the recipient."""
_EMPTY_WORDS = re.compile(
    r"\.\.\. (?:service unavailable|remote protocol error|unknown mailer error \d*)\s*$", re.IGNORECASE
)
"""With these a mail system passes on what the line before says."""
_PARENT = re.compile(
    r"\((?:ultimately )?(?:generated|expanded) from:? <?([^\s<>()]{1,64}@[^\s<>()]{1,255}?)>?\)", re.IGNORECASE
)
_REPORTER = re.compile(
    r"(?:\bhost:? |\bserver |\bwhile talking to |\bsmtp server <|\bremote-?mta:? <?(?:dns; ?)?|\bsystem: )"
    r"<?([a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){1,8})",
    re.IGNORECASE,
)


_ADDRESS = re.compile(r"[^\s<>@]{1,64}@[^\s<>@]{1,255}")
_WORD = re.compile(r"[^\W\d_]{2,}")

_Place = tuple[int, str, int]
"""Line, address, and how likely it is a failed recipient: 2 it begins the line, 1 it is named as one, 0 it is
there, -1 it is in a header field."""


class Clues(NamedTuple):
    """What else is known of a report. failed: recipients that a field names. sender: addresses that are the sender's.
    sent_to: whom the enclosed original was for. subject, reporter: of the report."""

    failed: list[str]
    sender: frozenset[str]
    sent_to: list[str]
    subject: str
    reporter: str


class Told(NamedTuple):
    """What a text says of one recipient."""

    recipient: str
    reply: Reply
    reporter: str


def read_text(text: str, clues: Clues) -> list[Told]:
    """For each recipient that the text, without the original, is about. If it names none, of recipient ""."""
    lines = [line[:LINE_CHARACTERS_MAX] for line in text.split("\n", LINES_MAX)[:LINES_MAX]]
    places = _places(lines, clues.sender) or [place for place in _places(lines, frozenset()) if place[2] == 2]
    recipients = _recipients(places, clues)[:RECIPIENTS_MAX] or [""]
    return [_told(recipient, len(recipients), places, lines, clues) for recipient in recipients]


def _places(lines: list[str], sender: frozenset[str]) -> list[_Place]:
    places = list[_Place]()
    for number, line in enumerate(lines):
        if "@" not in line or _SENDERS.search(line):
            continue
        begin = _BEGIN.match(line)
        rest = line[begin.end() :] if begin else line
        for address in addresses(line):
            if address.lower() in sender or len(places) >= 4 * RECIPIENTS_MAX:
                continue
            if rest.startswith(address):
                places.append((number, address, 2))
            elif not says(line.lower(), HELPERS):
                before = line.partition(address)[0]
                context = before if before.strip(" <>\"'(") else _line_before(lines, number)
                likely = -1 if _FIELD.match(line) else int(says(context.lower(), NAMING))
                places.append((number, address, likely))
    return places


def _line_before(lines: list[str], number: int) -> str:
    """The last one with words; "" if there is none."""
    return next((line for line in reversed(lines[max(0, number - 3) : number]) if line.strip()), "")


def _recipients(places: list[_Place], clues: Clues) -> list[str]:
    if clues.failed:
        return clues.failed
    best = max((likely for _, _, likely in places), default=0)
    chosen = list({address.lower(): address for _, address, likely in places if likely == best}.values())
    if best <= 0:
        known = {address.lower() for address in clues.sent_to}
        return [address for address in chosen if address.lower() in known] or clues.sent_to[:1] or chosen[:1]
    return chosen


def _told(recipient: str, count: int, places: list[_Place], lines: list[str], clues: Clues) -> Told:
    others = {number for number, address, likely in places if likely == 2 and address.lower() != recipient.lower()}
    own = [number for number, address, likely in places if address.lower() == recipient.lower() and likely > 0]
    segment = _segment(own[0], others, lines) if own else ""
    whole = _through_code(lines)
    if len(_words(_ADDRESS.sub("", whole), "")) < 2:
        whole = "\n".join([clues.subject, *(line for line in lines if line.strip())])[:_SAID_CHARACTERS_MAX]
    said = _said(own, count, segment, whole, others, lines)
    words = _words(said, recipient)
    reply = implied(reply_of(said), clues.subject if len(words) < 2 else "")
    if len(words) < 2 and not reply.text.strip(" -<>:"):
        reply = Reply(reply.code, reply.enhanced, clues.subject)
    if (of := _OF_SENDER.search(f"{said}\n{segment}")) and "in reply to" not in reply.text:
        command = "HELO" if of[3] or (of[1] or "")[1:].lower() in ("elo", "hlo") else "MAIL FROM"
        reply = Reply(reply.code, reply.enhanced, f"{reply.text} (in reply to {command} command)")
    parent, host = _PARENT.search(segment), _REPORTER.search(said)
    if parent and (not clues.sent_to or parent[1].lower() in {address.lower() for address in clues.sent_to}):
        recipient = parent[1]
    return Told(recipient, reply, host[1] if host else clues.reporter)


def _said(own: list[int], count: int, segment: str, whole: str, others: set[int], lines: list[str]) -> str:
    """The words about a recipient: a line of the dialogue that names it, what follows its name, or all there is."""
    quoted = next((number for number in own if has_code(lines[number])), None)
    if quoted is not None and (dialogue := _DIALOGUE.match(lines[quoted])):
        before = lines[quoted - 1] if quoted else ""
        if _EMPTY_WORDS.search(lines[quoted]) and len(_words(before, "")) > 1:
            return before if has_code(before) else f"{dialogue[0]} {before}"
        return _paragraph(lines, quoted, others)
    if has_code(segment) or (count > 1 and len(_words(segment, "")) > 1):
        return segment
    if has_code(whole) or not _words(_ADDRESS.sub("\n", segment).partition("\n")[2], ""):
        return whole
    return segment


def _segment(start: int, others: set[int], lines: list[str]) -> str:
    """The lines from the one that names the recipient up to one that names another, or to the end of the reply."""
    end = min((number for number in others if number > start), default=len(lines))
    return _through_code(lines[start:end])


def _paragraph(lines: list[str], start: int, others: set[int]) -> str:
    taken = [lines[start]]
    for number in range(start + 1, min(start + 12, len(lines))):
        if not lines[number].strip() or number in others or _DIALOGUE.match(lines[number]):
            break
        taken.append(lines[number])
    return "\n".join(taken)


def _through_code(lines: list[str]) -> str:
    """The useful lines; if a reply is among them, only to the end of its paragraph."""
    taken, coded, blank = list[str](), False, False
    for line in lines:
        if coded and blank and line.strip() and not _DIALOGUE.match(line):
            break
        blank = not line.strip()
        if blank:
            continue
        if line.strip(" -=*_#\t>|") and (has_code(line) or not says(line.lower(), BOILERPLATE)):
            taken.append(line)
            coded = coded or has_code(line)
    return "\n".join(taken)[:_SAID_CHARACTERS_MAX]


def _words(text: str, recipient: str) -> list[str]:
    return _WORD.findall(text.replace(recipient, "") if recipient else text)
