"""The judge itself: each rule that is broken must be seen, or the trials prove nothing."""

from __future__ import annotations

from survival.ledger import Ledger
from survival.letters import Letter, again, letter, name_in

TRACE = b"Received: from here by there;\r\n\tat some time\r\n"


def several() -> Letter:
    """A message to several plain recipients."""
    return next(one for number in range(1000) if len((one := letter(number, kinds="plain")).recipients) == 5)


def ledger_with(one: Letter, acknowledged: bool = True) -> Ledger:
    ledger = Ledger(kinds="plain")
    ledger.open(one)
    if acknowledged:
        ledger.acknowledge(one)
    return ledger


def test_letters_are_made_from_their_names() -> None:
    """The same name gives the same bytes; attempts share no recipient."""
    one = letter(7, 1)
    assert again(one.name) == one
    assert name_in(one.sender) == name_in(one.recipients[0]) == "7.1"
    assert not set(one.recipients) & set(letter(7, 2).recipients)


def test_what_came_whole_and_once_is_well() -> None:
    """Trace fields in front are the one difference allowed."""
    one = several()
    ledger = ledger_with(one)
    ledger.came(one.sender, one.recipients, TRACE + one.data)
    assert ledger.judge([]).broken == []


def test_an_acknowledged_recipient_without_mail_is_lost() -> None:
    """Every recipient counts, not every message."""
    one = several()
    ledger = ledger_with(one)
    ledger.came(one.sender, one.recipients[1:], TRACE + one.data)
    assert ledger.judge([]).lost == one.recipients[:1]


def test_an_unacknowledged_letter_comes_whole_or_not_at_all() -> None:
    """To none of its recipients, to all of them, but never to some."""
    one = several()
    assert ledger_with(one, acknowledged=False).judge([]).broken == []
    ledger = ledger_with(one, acknowledged=False)
    ledger.came(one.sender, one.recipients[1:], TRACE + one.data)
    assert ledger.judge([]).torn == [one.name]


def test_only_those_in_doubt_may_get_it_twice() -> None:
    """A duplicate that is listed is well, one that is not breaks the rule."""
    one = several()
    for in_doubt, doubled in (([], one.recipients[:1]), (one.recipients[:1], [])):
        ledger = ledger_with(one)
        ledger.came(one.sender, one.recipients, TRACE + one.data)
        ledger.came(one.sender, one.recipients[:1], TRACE + one.data)
        assert ledger.judge(in_doubt).doubled == doubled


def test_wrong_bytes_and_foreign_mail_are_seen() -> None:
    """One changed byte, a header that is no trace field, a recipient or a message that nobody sent."""
    one = several()
    ledger = ledger_with(one)
    ledger.came(one.sender, one.recipients, TRACE + one.data[:-3] + b"?\r\n")
    ledger.came(one.sender, one.recipients, b"X-Other: 1\r\n" + one.data)
    ledger.came("writer-999.0@letters.test", ["somebody@one.test"], one.data)
    judgement = ledger.judge(one.recipients)
    assert (judgement.wrong, len(judgement.foreign)) == ([one.name] * 2, 1)


def test_a_refused_recipient_needs_its_notification() -> None:
    """Refused for good: no mail, and a notification to the sender that names it as failed."""
    one = next(
        found
        for number in range(5000)
        if (found := letter(number)).recipients[0].startswith("gone-") and not found.recipients[1:]
    )
    ledger = Ledger()
    ledger.open(one)
    ledger.acknowledge(one)
    ledger.came("", [one.sender], b"Final-Recipient: rfc822; somebody@else.test\r\nAction: failed\r\n")
    assert ledger.judge([]).unnotified == one.recipients
    ledger = Ledger()
    ledger.open(one)
    ledger.acknowledge(one)
    ledger.came("", [one.sender], f"Final-Recipient: rfc822; {one.recipients[0]}\r\nAction: failed\r\n".encode())
    assert ledger.judge([]).broken == []
