"""Hard bounces and complaints: who is found, with what evidence, and above all who is not."""

from typing import Any

import pytest

from zonemta_py.mail.rules.classes import CLASSES
from zonemta_py.pipeline.findings.suppressions import COLUMNS, EVIDENCE_MAX, STANDARDS, STORM_LEAST, suppressions

UNKNOWN = {"verdict": "bounced", "class": "user-unknown", "code": 550, "enhanced": "5.1.1", "reply": "No such user"}
FULL = {"verdict": "deferred", "class": "mailbox-full", "code": 452, "enhanced": "4.2.2", "reply": "Over quota"}
GONE = {
    "verdict": "bounced",
    "class": "host-unknown",
    "code": 550,
    "enhanced": "5.1.2",
    "stage": "dns",
    "reply": "no domain",
}
ABOUT_US = (
    "blocked-ip", "poor-reputation", "policy", "spam-content", "authentication", "reverse-dns", "rate", "greylisting",
    "tls", "network", "virus", "system-error", "expired", "undefined",
)  # fmt: skip


def full(to: str, *days: float) -> list[dict[str, Any]]:
    return [{"recipient": to, "days": day, **FULL} for day in days]


def story() -> list[dict[str, Any]]:
    """Each person's local part says what happened to them."""
    return [
        {"recipient": "Unknown@Example.com", "days": 1, **UNKNOWN},
        {"recipient": "erased-1f@erased.invalid", "days": 1, **UNKNOWN},
        {"recipient": "unknown-then-delivered@example.com", "days": 1, **UNKNOWN},
        {"recipient": "unknown-then-delivered@example.com", "days": 2},
        {"recipient": "delivered-then-unknown@example.com", "days": 1},
        {"recipient": "delivered-then-unknown@example.com", "days": 2, **UNKNOWN},
        {"recipient": "unknown-for-now@example.com", "days": 1, **UNKNOWN, "verdict": "deferred", "code": 450},
        {"recipient": "lifted@example.com", "days": 1, **UNKNOWN},
        {"recipient": "lifted-again@example.com", "days": 1, **UNKNOWN},
        {"recipient": "lifted-again@example.com", "days": 9, **UNKNOWN},
        *full("full@example.com", 0, 4, 8, 12, 16),
        *full("full-too-short@example.com", 0, 1, 2, 3, 4, 5, 6),
        *full("full-too-seldom@example.com", 0, 8, 20),
        *full("full-then-read@example.com", 0, 4, 8),
        {"recipient": "full-then-read@example.com", "days": 9},
        *full("full-then-read@example.com", 12, 16),
        *({"recipient": "full-one-letter@example.com", "days": day, "id": "one", **FULL} for day in range(20)),
        *({"recipient": "gone@old.example", "days": day, **GONE} for day in (0, 5, 10)),
        {"recipient": "gone-once@old.example", "days": 3, **GONE},
        *(
            {
                "recipient": f"{kind}@example.net",
                "days": day,
                "verdict": "bounced",
                "class": kind,
                "code": 550,
                "reply": kind,
            }
            for kind in ABOUT_US
            for day in range(0, 40, 4)
        ),
        *storm("outage.example", STORM_LEAST, known=True),
        *storm("bad-list.example", STORM_LEAST, known=False),
        {"recipient": "0@outage.example", "days": 9, **UNKNOWN},
    ]


def storm(domain: str, people: int, known: bool) -> list[dict[str, Any]]:
    rows = [{"recipient": f"{n}@{domain}", "days": 5, **UNKNOWN} for n in range(people)]
    return [{"recipient": f"{n}@{domain}", "days": 1} for n in range(people)] * known + rows


@pytest.fixture(scope="module")
def found(spark: Any, attempts: Any, moment: Any) -> dict[str, Any]:
    events = [
        ("Complained@example.com", "complaint", moment(3), "spring"),
        ("unknown@example.com", "complaint", moment(3), "spring"),
        ("unknown@example.com", "unsubscribe", moment(3), "spring"),
        ("left@example.com", "unsubscribe", moment(4), ""),
        ("left-and-back@example.com", "unsubscribe", moment(4), ""),
        ("reader@example.com", "open", moment(4), "spring"),
    ]
    lifted = [(f"{who}@example.com", moment(5)) for who in ("lifted", "Lifted-Again", "left-and-back")]
    rows = suppressions(
        attempts([*story(), {"recipient": "complained@example.com", "days": 6}]),
        spark.createDataFrame(events, "address string, kind string, at timestamp, campaign string"),
        spark.createDataFrame(lifted, "address string, at timestamp"),
    ).collect()
    assert len(rows) == len({(row.address, row.kind) for row in rows})
    return {row.address if row.address != "unknown@example.com" else f"{row.kind} {row.address}": row for row in rows}


def test_who_is_found(found: dict[str, Any]) -> None:
    """Each standard finds those who meet it; later deliveries, too few messages and too few days find nobody."""
    here = {
        address.removesuffix("@example.com"): row.rule for address, row in found.items() if "@example.com" in address
    }
    assert here == {
        "complaint unknown": "complaint",
        "unsubscribe unknown": "unsubscribe",
        "hard-bounce unknown": "address-unknown",
        "delivered-then-unknown": "address-unknown",
        "lifted-again": "address-unknown",
        "full": "mailbox-full",
        "complained": "complaint",
        "left": "unsubscribe",
    }
    assert found["gone@old.example"].rule == "domain-gone"
    assert not {"gone-once@old.example", "erased-1f@erased.invalid"} & found.keys()


def test_blocks_policies_and_spam_stop_nobody(found: dict[str, Any]) -> None:
    """What a provider has against us or the message says nothing of a person, however often it comes."""
    assert not [address for address in found if address.endswith("@example.net")]
    assert not {kind for standard in STANDARDS for kind in standard.classes} & set(ABOUT_US)


def test_a_provider_that_breaks_down_costs_nobody_their_mail(found: dict[str, Any]) -> None:
    """Where many who had mail before are refused in one day, one refusal does not count; a list of strangers does."""
    assert [address for address in found if address.endswith("@outage.example")] == ["0@outage.example"]
    assert sum(address.endswith("@bad-list.example") for address in found) == STORM_LEAST


def test_evidence_says_what_when_and_how_often(found: dict[str, Any], moment: Any) -> None:
    """A row can be checked by hand: the replies with time, message and classes, the counts, the first and last time."""
    row = found["full@example.com"]
    assert tuple(row.asDict()) == COLUMNS
    assert (row.kind, row.messages, row.attempts) == ("hard-bounce", 5, 5)
    assert (row.since.timestamp(), row.until.timestamp()) == (moment(0).timestamp(), moment(16).timestamp())
    assert row.reason == "the mailbox has been full for a long time (5 messages in 16 days): 452 4.2.2 Over quota"
    assert len(row.evidence) == EVIDENCE_MAX
    assert {(one.code, one.enhanced, one.reply) for one in row.evidence} == {(452, "4.2.2", "Over quota")}


def test_standards_speak_of_known_classes() -> None:
    """A class that the rules never give would be a standard that nobody can meet."""
    assert {kind for standard in STANDARDS for kind in standard.classes} <= set(CLASSES)
