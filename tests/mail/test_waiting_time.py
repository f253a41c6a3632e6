"""The time that servers ask for, in their own words: of greylisting programs, policy servers and providers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.mail.rules.waiting_time import said_wait_s

WORDINGS: list[tuple[str, int | None]] = [
    # milter-greylist, its Python kin, and what administrators make of them
    ("Greylisting in action, please come back in 00:04:32", 272),
    ("Greylisting in action, please come back in 01:00:00", 3600),
    ("Greylisting in Action, Please Come Back in 00:02:00 [minutes]", 120),
    ("Greylisting in action, please come back in 300 seconds", 300),
    ("Greylisting in action, please come back later", None),
    # postgrey and policy servers, with Postfix's words before it
    ("<r1@d.example>: Recipient address rejected: Greylisted for 300 seconds (see "
     "http://isg.ee.ethz.ch/tools/postgrey/help/d.example.html)", 300),
    ("<r1@d.example>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/help/d.example.html",
     None),
    ("<r@d.example>: Recipient address rejected: Greylisted for 5 minutes. Try again later.", 300),
    ("Greylisted for 59 seconds. policy[default]", 59),
    ("<r1@d.example>: Recipient address rejected: Greylisted, try again in 300 seconds", 300),
    ("Recipient address rejected: Greylisting in action, please come back in 180 seconds", 180),
    ("Sender address rejected: Greylisted for 47 sec.", 47),
    # others
    ("Greylisted, please try again in 120 seconds", 120),
    ("Greylisted, please try again in 5 minutes", 300),
    ("Greylisted, please try again in 1 minutes", 60),
    ("Greylisted, please try again in a few moments.", None),
    ("Greylisted, please try again later", None),
    ("Greylisting in effect, please retry in 300 seconds", 300),
    ("Greylisted, retry in 300s", 300),
    ("4.7.1 greylisted, retry in 60s", 60),
    ("Greylisted, retry in 5 minutes", 300),
    ("greylisted, try again in 90 seconds", 90),
    ("greylisted, retry in 2 hours", None),
    ("greylisted, please retry shortly", None),
    ("try again in 3 seconds", 3),
    ("You are greylisted, come back after 4m32s", 272),
    ("Temporarily rejected. Try again in 1 hour", 3600),
    ("Try again in one minute and 30 seconds", 90),
    ("please wait at least 10 minutes before you try again", 600),
    ("Greylisted: 240 seconds remaining", 240),
    ("Service temporarily unavailable, please try again in half an hour", 1800),
    # what numbers there are that say something else
    ("Too many messages: 20 in 60 seconds, try later", None),
    ("You sent too many mails from different domains in the last 10 minutes", None),
    ("Requested action aborted: try again later (limit 100 per 60 minutes)", None),
    ("Connection timed out after 30 seconds", None),
    ("Too many recipients received this hour", None),
    ("4.7.650 The mail server [192.0.2.5] has been temporarily rate limited due to IP reputation", None),
    ("Try again later, closing connection. 5 s", None),
    ("4.3.2 Service shutting down", None),
    ("User busy, try again; ref 20 h4-2001", None),
    ("Greylisted 3 days", None),
    # kept unseen until the reading was written (11 of these 12 were read right at first)
    ("You are greylisted for another 12.5 minutes.", 750),
    ("Your message has been greylisted. Please try again in 5 minutes.", 300),
    ("Please try again later", None),
    ("Too many requests from this IP, please try again after 15 minutes", 900),
    ("temporarily deferred - too many recipients", None),
    ("greylisted, try again in 5 s", 5),
    ("Greylisted, please retry in a few moments", None),
    ("Server busy. Please try again later from [192.0.2.4]. (S77714)", None),
    ("Greylisted, please retry in 1m0s", 60),
    ("You have sent too many. Please try again after Sun, 14 Jun 2026 14:59:56 GMT and see", None),
    ("Too many requests. Please try again in 00:04:06.", 246),
    ("greylisted for 1 minute", 60),
]  # fmt: skip


@pytest.mark.parametrize(("text", "seconds"), WORDINGS, ids=[text[:60] for text, _ in WORDINGS])
def test_wordings(text: str, seconds: int | None) -> None:
    """Said is said, with a second on top for the server's rounding; else nothing is made up."""
    assert said_wait_s(text) == (None if seconds is None else seconds + 1)


@given(st.text(st.sampled_from("try again in 0123456789:.hms seconds()"), max_size=400))
def test_anything(text: str) -> None:
    """Whatever a server writes, it is read quickly, and the answer is within bounds."""
    found = said_wait_s(text)
    assert found is None or 1 <= found <= 3601
