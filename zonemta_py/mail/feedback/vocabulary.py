"""Words that tell what a message is that came back: the lists of vocabulary/returned.toml."""

from __future__ import annotations

import re

from zonemta_py.mail.vocabulary.matcher import lists, says, with_bare

_LISTS = {name: with_bare(those) for name, those in lists("returned.toml")}
DAEMONS = _LISTS["daemons"]
MACHINES = _LISTS["machines"]
POSTAL = _LISTS["postal"]
FAILURES = _LISTS["failures"]
REASONS = _LISTS["reasons"]
DELAYS = _LISTS["delays"]
FINAL = _LISTS["final"]
DELIVERED = _LISTS["delivered"]
NAMING = _LISTS["naming"]
HELPERS = _LISTS["helpers"]
HELPING = _LISTS["helping"]
BOILERPLATE = _LISTS["boilerplate"]
AWAY_SUBJECTS = _LISTS["away_subjects"]
TICKETS = _LISTS["tickets"]
REQUESTS = _LISTS["requests"]
RECEIVED = _LISTS["received"]
AWAY_TEXTS = _LISTS["away_texts"]
SURE_CHALLENGES = _LISTS["sure_challenges"]
CHALLENGES = (*SURE_CHALLENGES, *_LISTS["challenges"])
LISTS = _LISTS["lists"]
HELD = _LISTS["held"]
REFUSED = _LISTS["refused"]
POSTING = _LISTS["posting"]
OF_TRADE = _LISTS["of_trade"]
OF_MAIL = _LISTS["of_mail"]
OVERVIEWS = _LISTS["overviews"]
UNSUBSCRIBES = _LISTS["unsubscribes"]
COMPLAINTS = _LISTS["complaints"]
COMPLAINING = _LISTS["complaining"]
JUNK = _LISTS["junk"]
PASSING = _LISTS["passing"]
ORIGINALS = _LISTS["originals"]

_FAILED = re.compile(
    r"\b(?:not|never|cannot|can't|couldn't|didn't|wasn't|weren't|hasn't|haven't|won't|unable|failed|impossible|nobody)\b"
    r"(?:\W{1,3}\w{1,20}){0,4}?\W{1,3}(?:deliver\w*|hand\w* (?:over|to)|accept\w*|reach\w*|arrive\w*|receive\w*"
    r"|get|gets|got|served|placed|stored|sent|send|forward\w*|pass\w* on|relay\w*|transmi\w+|transfer\w*|bring"
    r"|brought|processed)\b"
    r"|\b(?:was|were|has|have|had|is|are|be|been|being)\b(?:\W{1,3}\w{1,20}){0,2}?\W{1,3}"
    r"(?:reject|refus|return|bounc|block|turned (?:down|away|back)|sent back|given back|discard|dropped|destroy"
    r"|withheld|declin|denied|thrown away|undeliver|stopped)"
)


def fails(words: str) -> bool:
    """Whether the words, lower case with single spaces, say that something was not delivered."""
    return says(words, FAILURES) or _FAILED.search(words) is not None
