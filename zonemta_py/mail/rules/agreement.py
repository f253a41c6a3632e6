"""Whether code, text and stage of a reply agree that its recipient does not exist, so that one reply is enough."""

from __future__ import annotations

from zonemta_py.mail.reply import Reply

GONE = frozenset(("user-unknown", "moved"))
STAGES_OF_RECIPIENTS = frozenset(("rcpt", "data", "dot", "report"))
_CODES = frozenset((550, 551, 553, 554))
_ENHANCED = frozenset(("5.1.1", "5.1.6"))


def agreed(kind: str, reply: Reply, stage: str) -> bool:
    """kind: the class that a rule found in the text."""
    known = kind in GONE and stage in STAGES_OF_RECIPIENTS
    return known and reply.code in _CODES and reply.enhanced in _ENHANCED
