"""Whatever comes, `read` answers, in little room; how soon, scripts/feedback fuzz measures, which is the long form."""

from __future__ import annotations

import tracemalloc

from tests.mail.feedback.mutations import mutated
from tests.mail.feedback.written import ALL
from zonemta_py.mail.feedback.read import read
from zonemta_py.mail.feedback.report import KINDS

NUMBER = 600
BYTES_MAX = 16_000_000
MESSAGES = [one.message for one in ALL]


def test_no_mutated_report_crashes_the_reader() -> None:
    for seed in range(NUMBER):
        report = read(mutated(seed, MESSAGES))
        assert report.found, seed
        assert {one.kind for one in report.found} <= set(KINDS), seed


def test_no_mutated_report_takes_much_room() -> None:
    tracemalloc.start()
    try:
        for seed in range(0, NUMBER, 12):
            message = mutated(seed, MESSAGES)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            read(message)
            assert tracemalloc.get_traced_memory()[1] - before < BYTES_MAX, seed
    finally:
        tracemalloc.stop()


def test_a_character_reference_without_end_is_no_character() -> None:
    """Python refuses to read a number of so many digits."""
    page = f"<p>Your message to ann@example.net was rejected: no such user &#{'5' * 9_000}; here</p>"
    head = "From: MAILER-DAEMON@example.net\nReturn-Path: <>\nSubject: failure notice\nContent-Type: text/html"
    (found,) = read(f"{head}\n\n{page}\n".encode()).found
    assert (found.kind, found.recipient) == ("bounce", "ann@example.net")
