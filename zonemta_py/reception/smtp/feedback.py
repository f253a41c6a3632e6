"""RCPT of what comes back: addresses of ours are taken from everybody, other ones only from who may relay.

A forwarded sender (SRS) is reversed for the null return path only. Whoever has got one of our forwarded messages has
read the address, so with any sender allowed it would be a relay to one person, for whoever wants to write to them
unseen, as long as the address is valid; and a message that has a sender can go to where it came from without us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zonemta_py.mail.address import AddressRefused, parse_rcpt
from zonemta_py.mail.addresses.ours import NotOurs, Ours
from zonemta_py.mail.reply import Reply
from zonemta_py.reception.feedback.returns import TOO_MUCH, Returns
from zonemta_py.reception.smtp import replies
from zonemta_py.reception.smtp.transaction import CameBack

if TYPE_CHECKING:
    from zonemta_py.reception.smtp.transaction import MailTransaction

RECIPIENTS_MAX = 100
"""Addresses of ours in a stranger's transaction; more get 452 (RFC 5321 4.5.3.1.8)."""
NOBODY = Reply(550, "5.1.1", "There is no such address here")
NOT_NULL = Reply(550, "5.7.1", "Only bounces are forwarded from here: mail with the null sender <>")
LATER = frozenset((TOO_MUCH, replies.TOO_MANY_RECIPIENTS))
"""Not the client's error: it comes again."""


def look(returns: Returns, transaction: MailTransaction, text: str, may_relay: bool) -> Ours | Reply | None:
    """What follows "RCPT TO:": an address of ours, the reply to one that is refused, or None: it is not for us."""
    try:
        recipient, _ = parse_rcpt(text, transaction.envelope.smtputf8)
        ours = _find(returns, recipient.address, may_relay)
    except AddressRefused as refused:
        return None if may_relay else refused.reply
    except NotOurs as why:
        return Reply(550, "5.1.1", f"No mail is taken at this address: {why}")
    if ours is None:
        return NOBODY if not may_relay and returns.domains.holds(recipient.address) else None
    if ours.forward and transaction.envelope.sender:
        return NOT_NULL
    if transaction.rcpts >= RECIPIENTS_MAX and not may_relay:
        return replies.TOO_MANY_RECIPIENTS
    if transaction.back is None:
        client = transaction.envelope.origin or ""
        if not may_relay and not returns.enter(client):
            return TOO_MUCH
        transaction.back = CameBack(returns, client, not may_relay)
    return ours


def _find(returns: Returns, address: str, may_relay: bool) -> Ours | None:
    """Raises NotOurs. This host's own postmaster is everybody's (RFC 5321 4.5.1); what a client that may relay sends
    there goes on by mail, as it always did."""
    if address.lower() in returns.postmasters:
        return None if may_relay else Ours("postmaster", address)
    return returns.find(address)
