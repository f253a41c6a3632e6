"""Answers that are no bounces: absences, help desks, list servers, challenges, read receipts, unsubscribes."""

from __future__ import annotations

import re

from zonemta_py.mail.feedback.addresses import address_of, addresses
from zonemta_py.mail.feedback.own_words import own_words, unquoted
from zonemta_py.mail.feedback.parts import Parts, fields_of
from zonemta_py.mail.feedback.report import Found
from zonemta_py.mail.feedback.vocabulary import (
    AWAY_SUBJECTS,
    AWAY_TEXTS,
    CHALLENGES,
    HELD,
    LISTS,
    MACHINES,
    POSTING,
    RECEIVED,
    REFUSED,
    REQUESTS,
    SURE_CHALLENGES,
    TICKETS,
    fails,
)
from zonemta_py.mail.feedback.wishes import PLAIN, declined, names_it, wish_in
from zonemta_py.mail.fields import one_line
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.vocabulary.matcher import says

_TEXT_CHARACTERS = 300
_REPLY_FIELDS = (
    "x-autoreply",
    "x-autorespond",
    "x-auto-reply",
    "x-vacation",
    "x-autoresponder",
    "x-autoreply-from",
    "x-mail-autoreply",
    "x-autoresponse",
    "x-zendesk-from-account-id",
    "x-fc-machinegenerated",
    "x-rt-loop-prevention",
    "x-otrs-followup",
    "x-ms-exchange-inbox-rules-loop",
)
"""Fields that only those who answer by themselves write."""
_CHALLENGE_FIELDS = ("x-tmda-fingerprint", "x-challenge", "x-boxbe-challenge", "x-spamarrest", "x-asvp-challenge")
_LIST_SERVERS = ("sympa", "listserv", "majordom", "mailman", "ezmlm")
_LIST_ENDS = ("-owner", "-request", "-bounces", "+owner", "+bounces")
_REPLY_PRECEDENCE = ("auto_reply", "auto-reply", "autoreply")
_SERVICE = re.compile(
    r"(?:no-?reply|do-?not-?reply|noti|verif|confirm|challenge|auto|system|mailer|service)", re.IGNORECASE
)
"""The local part of a program's address."""
_HELD_CHARACTERS = 400
_COMMANDS = ("subscription request", "email command")
"""What a list refuses, too."""
_WAITING = re.compile(
    r"\b(?:held|queue|wait\w*|not (?:yet )?been rejected|warte\w*|attente|pendiente|aguard\w+|attesa)\b"
)
"""For a moderator."""
_OF_LISTS = ("list-id", "list-post")
"""Of a mail that a list has passed on: its members speak to each other."""
_LEAVING = ("unsubscribe", "unsub-", "unsub+", "optout", "opt-out")


def read_receipt(parts: Parts) -> list[Found]:
    """A disposition notification (RFC 8098): opened or deleted, hence no bounce; [] if it has no such part."""
    fields = fields_of(parts.disposition)
    if not fields or _rejected(parts, fields.get("disposition", "").lower()):
        return []
    recipient = address_of(fields.get("original-recipient", "")) or address_of(fields.get("final-recipient", ""))
    return [
        Found("other", recipient, Reply(0, "", fields.get("disposition", "")[:_TEXT_CHARACTERS]), parts.sender_host())
    ]


def _rejected(parts: Parts, disposition: str) -> bool:
    """Whether it says that a filter has refused the message in its recipient's name (RFC 5429 2.1.2)."""
    if "deleted" not in disposition:
        return False
    return any("rejected" in parts.decoded(name).lower() for name in ("auto-submitted", "subject"))


def read_answer(parts: Parts, daemon: bool, failure: bool) -> tuple[str, list[Found]]:
    """("rfc3834", "challenge", "list" or "", what is found).

    daemon: it comes from a mail system; failure: its subject speaks of a failure. Where both are true it is no
    answer, unless it is one in as many words.
    """
    said = (
        unquoted(parts) if is_reply(parts) and not daemon else parts.text
    )  # a newsletter that somebody quotes has words for them, too
    subject, text = parts.decoded("subject").lower(), " ".join(said[:6_000].lower().split())
    if "x-apple-unsubscribe" in parts.fields:
        return "", []
    if _challenging(parts, subject, text, daemon):
        return "challenge", [answer_of(parts, "challenge")]
    held = not daemon and _held(parts, f"{subject} {text[:_HELD_CHARACTERS]}")
    if (held and not fails(subject)) or (says(subject, LISTS) and not failure and not fails(text)):
        return "list", [answer_of(parts, "auto-reply")]
    answers = is_reply(parts) and parts.fields.get("auto-submitted", "").lower().startswith("auto-replied")
    if (daemon and failure and not answers) or parts.fields.get("x-failed-recipients"):
        return "", []
    if _answering(parts, subject, text, daemon):
        return "rfc3834", [answer_of(parts, "auto-reply")]
    return "", []


def read_marked(parts: Parts, daemon: bool) -> tuple[str, list[Found]]:
    """What says of itself that a program has sent it, and is about a request, in words that nobody knows."""
    submitted, subject = parts.fields.get("auto-submitted", "").lower(), parts.decoded("subject").lower()
    answers = is_reply(parts) or says(subject, ("ticket", "case ", "vorgang"))
    marked = (submitted.startswith("auto-") and answers) or (is_machine(parts) and thanks(parts.text))
    if daemon or not marked or "list-id" in parts.fields:
        return "", []
    return "rfc3834", [answer_of(parts, "auto-reply")]


def read_unsubscribe(parts: Parts, by_subject: bool = False) -> list[Found]:
    """A mail to the address of List-Unsubscribe (RFC 2369), by subject, or also by its address or the writer's own
    first words; [] if it is none."""
    asked = "x-apple-unsubscribe" in parts.fields or _sent_by_program(parts)
    if not asked and _may_wish(parts):
        own, subject = own_words(parts), _own_subject(parts)
        to = address_of(parts.fields.get("to", "")).lower().partition("@")[0]
        wish = wish_in(own, subject)
        asked = wish == PLAIN and (not by_subject or wish_in([], subject) == PLAIN)
        if not asked and not by_subject:
            named = not own and not subject and names_it(_without_prefix(parts.decoded("subject")))
            asked = named or (to.startswith(_LEAVING) and not declined([subject, *own]))
    return [_of_author(parts, "unsubscribe")] if asked else []


def _sent_by_program(parts: Parts) -> bool:
    """Whether a mail program has written to the address of List-Unsubscribe for somebody, and says so."""
    submitted = parts.fields.get("auto-submitted", "").lower()
    if not submitted.startswith("auto-generated") or "list-id" in parts.fields:
        return False
    return not is_reply(parts) and names_it(parts.decoded("subject"))


def read_wish(parts: Parts) -> list[Found]:
    """What may be a wish to leave, in prose: an operator decides; [] if it is none."""
    if not _may_wish(parts):
        return []
    repeated = is_reply(parts) and names_it(_without_prefix(parts.decoded("subject")))
    wishes = repeated or wish_in(own_words(parts), _own_subject(parts))
    return [_of_author(parts, "other")] if wishes else []


def wishes_in_person(parts: Parts) -> str:
    """What `wish_in` has of somebody's answer in their own words, whom thanks, or news of a death, make no program."""
    return wish_in(own_words(parts), "") if is_reply(parts) and _may_wish(parts) else ""


def _may_wish(parts: Parts) -> bool:
    """Whether a person wrote it, and to us: programs and lists wish for nothing."""
    subject = parts.decoded("subject").lower()
    return not (
        any(name in parts.fields for name in _OF_LISTS) or is_automatic(parts.fields) or says(subject, AWAY_SUBJECTS)
    )


def _own_subject(parts: Parts) -> str:
    """ "" where it repeats ours."""
    return "" if is_reply(parts) else one_line(parts.decoded("subject"))


def _without_prefix(subject: str) -> str:
    return subject.lower().strip().partition(":")[2] or subject.partition("：")[2]


def _of_author(parts: Parts, kind: str) -> Found:
    own = one_line(" ".join(own_words(parts)))
    said = own if kind == "other" and own else one_line(parts.decoded("subject").lower().strip())
    return Found(kind, address_of(parts.decoded("from")), Reply(0, "", said[:200]), "")


def _answers(parts: Parts) -> bool:
    """Whether it answers somebody, and is no list's."""
    if any(name in parts.fields for name in (*_OF_LISTS, "list-unsubscribe")):
        return False
    return is_reply(parts) or "in-reply-to" in parts.fields or "references" in parts.fields


def is_automatic(fields: dict[str, str]) -> bool:
    """Whether a program says of itself that it has sent it, in any of the ways that they do."""
    submitted = fields.get("auto-submitted", "").lower()
    return (
        bool(submitted and submitted != "no")
        or any(name in fields for name in ("x-auto-response-suppress", *_REPLY_FIELDS))
        or fields.get("precedence", "").lower() in ("bulk", "junk", "list", *_REPLY_PRECEDENCE)
        or fields.get("x-mailer", "").lower().startswith(("vacation", "autorespond", "auto-respond"))
    )


def is_reply(parts: Parts) -> bool:
    """Whether the subject is that of an answer."""
    return parts.decoded("subject").lower().lstrip().startswith(_REPLY_SUBJECTS)


def _challenging(parts: Parts, subject: str, text: str, daemon: bool) -> bool:
    if any(name in parts.fields for name in _CHALLENGE_FIELDS):
        return True
    return says(subject, CHALLENGES) or (not daemon and says(text, CHALLENGES)) or (says(text, SURE_CHALLENGES))


def _answering(parts: Parts, subject: str, text: str, daemon: bool) -> bool:
    fields = parts.fields
    submitted = fields.get("auto-submitted", "").lower()
    if submitted.startswith("auto-replied") and (not daemon or is_reply(parts)) and not _refusing(parts, subject, text):
        return True
    if any(name in fields for name in _REPLY_FIELDS) or fields.get("precedence", "").lower() in _REPLY_PRECEDENCE:
        return True
    if says(subject, AWAY_SUBJECTS) or (says(subject, TICKETS) and (submitted or not is_reply(parts))):
        return True
    if says(subject, REQUESTS) and says(subject, RECEIVED):
        return True
    automatic = is_automatic(parts.fields) or subject.startswith("auto")
    if automatic and not daemon and _answers(parts) and not (fails(subject) or fails(text)):
        return True
    if automatic and not daemon and says(text[:_TEXT_CHARACTERS], REQUESTS) and says(text[:_TEXT_CHARACTERS], RECEIVED):
        return True
    return not daemon and (automatic or subject.startswith(_REPLY_SUBJECTS)) and says(text, AWAY_TEXTS)


def is_list_server(parts: Parts) -> bool:
    """Whether a program that runs lists has sent it, by its From field."""
    author = parts.decoded("from").lower()
    return says(author, _LIST_SERVERS) or address_of(author).partition("@")[0].endswith(_LIST_ENDS)


def _held(parts: Parts, said: str) -> bool:
    """Whether a list has taken a message, and its moderator will see it."""
    return says(said, HELD) or (is_list_server(parts) and says(said, POSTING) and _WAITING.search(said) is not None)


def refuses_posting(parts: Parts, words: str) -> bool:
    """Whether a list says that it has not taken a message of ours; words: its text, lower case, with single spaces."""
    said = f"{parts.decoded('subject').lower()} {words[:_HELD_CHARACTERS]}"
    if not is_list_server(parts) or is_reply(parts) or says(said, _COMMANDS) or _held(parts, said):
        return False
    return says(said, REFUSED) and says(said, POSTING)


def list_of(address: str) -> str:
    """The list whose owner, or program, has the address; "" if it is nobody's."""
    local, _, domain = address.partition("@")
    end = next((end for end in _LIST_ENDS if local.lower().endswith(end)), "")
    return f"{local[: -len(end)]}@{domain}" if end and len(end) < len(local) else ""


def is_machine(parts: Parts) -> bool:
    """Whether it has the null sender."""
    return parts.fields.get("return-path", "").strip() == "<>"


def thanks(text: str) -> bool:
    """Whether it begins as people's, and help desks', automatic replies do."""
    return says(" ".join(text[:_TEXT_CHARACTERS].lower().split()), AWAY_TEXTS)


def writes_itself(parts: Parts) -> bool:
    """Whether a program has written it, by its name and the local part of its address."""
    author = parts.decoded("from").lower()
    return says(author.replace(f"@{address_of(author).rpartition('@')[2]}", "@"), MACHINES)


def _refusing(parts: Parts, subject: str, text: str) -> bool:
    """Whether a filter or a list says by it that it has not taken the message; nobody's absence."""
    if is_reply(parts) or says(subject, AWAY_SUBJECTS) or says(text, AWAY_TEXTS) or not writes_itself(parts):
        return False
    return fails(subject) or (fails(text) and is_list_server(parts))


_REPLY_SUBJECTS = (
    "re:",
    "aw:",
    "sv:",
    "vs:",
    "antw:",
    "odp:",
    "rv:",
    "res:",
    "rif:",
    "ynt:",
    "回复",
    "回覆",
    "答复",
    "回信",
    "re：",
    "отв:",
    "ha:",
    "на:",
)


def answer_of(parts: Parts, kind: str) -> Found:
    """An answer of this kind."""
    text = re.sub(r"\s+", " ", parts.text[: 2 * _TEXT_CHARACTERS]).strip()[:_TEXT_CHARACTERS]
    return Found(kind, _answered_for(parts, kind), Reply(0, "", text), parts.sender_host())


def _answered_for(parts: Parts, kind: str) -> str:
    """Whose answer it is: who sends it, or, of a service, the only other address that its first sentences name."""
    author = address_of(parts.decoded("from"))
    if kind != "challenge" and not _SERVICE.search(author.partition("@")[0]):
        return author  # a challenge may come from whoever guards the mailbox
    ours = {one.lower() for name in ("to", "delivered-to") for one in addresses(parts.fields.get(name, ""))}
    named = {one.lower(): one for one in addresses(parts.text[: 2 * _TEXT_CHARACTERS])}
    others = [one for lower, one in named.items() if lower not in ours | {author.lower()} and "confirm" not in lower]
    if not _SERVICE.search(author.partition("@")[0]):
        others = [one for one in others if one.rpartition("@")[2] == author.rpartition("@")[2]]
    return others[0] if len(others) == 1 else author
