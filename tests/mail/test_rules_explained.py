"""`zonemta rules explain` says what the queue makes of a reply, however an operator copies it."""

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from zonemta_py.config import Config
from zonemta_py.config.section import shipped
from zonemta_py.mail.reply import Reply
from zonemta_py.mail.rules.rule import STAGES, reply_of
from zonemta_py.mail.rules.rules import Rules
from zonemta_py.queue.suppression.explain_reply import explained

LINES = (
    "5.1.1 The email account that you tried to reach does not exist", "No such user", "4.7.1 Greylisted, try again",
    "mailbox full", "5.7.1 blocked using zen.example", "  5.2.2 over quota", "4.2.0", "see https://x.example/550 help",
    "550 5.1.1 unknown", "Zu viele Verbindungen für heute", "rate limited", "",
)  # fmt: skip


@cache
def rules() -> Rules:
    return Rules.load([shipped("rules.toml")])


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([421, 450, 451, 452, 550, 552, 554]),
    st.lists(st.sampled_from(LINES), min_size=1, max_size=3),
    st.sampled_from(STAGES),
    st.sampled_from(["", "google", "microsoft"]),
    st.booleans(),
)
def test_a_reply_is_judged_as_the_queue_does(
    code: int, lines: list[str], stage: str, provider: str, joined: bool
) -> None:
    """As it stands in the log, in one line, and as it came, in several."""
    reply = Reply.from_lines(code, lines)
    wire = "\r\n".join([*(f"{code}-{line}" for line in lines[:-1]), f"{code} {lines[-1]}"])
    read = reply_of(str(reply) if joined else wire)
    judged = rules().judge(reply, stage, provider)
    found = explained(rules(), read, stage, provider, Config().suppression)
    assert (found.judged.kind, found.judged.rule) == (judged.kind, judged.rule)
