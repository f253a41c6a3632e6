"""Tables of reputation are read as they are downloaded: Microsoft's by place, others by the names of their columns."""

from __future__ import annotations

from typing import Any

import pytest

from zonemta_py.mail.reports.reputation import read_table
from zonemta_py.mail.reports.unpacking import ReportRefused

SNDS = (
    "192.0.2.9,11/29/2026 12:00 AM,11/29/2026 11:00 PM,1894,1890,1880,GREEN,< 0.1%,,,0,mx.example,n@example.com,\r\n"
    "192.0.2.10,11/29/2026 12:00 AM,11/29/2026 9:00 PM,94,90,80,RED,2.3%,11/29/2026 1:00 AM,11/29/2026 1:00 AM,3,mx,"
    "n@example.com,\r\n\r\n"
)


def said(text: str, **more: Any) -> list[dict[str, Any]]:
    return [row.said for row in read_table(text.encode(), **more)]


def test_snds() -> None:
    first, second = said(SNDS)
    assert first == {
        "provider": "microsoft", "what": "ip", "name": "192.0.2.9", "day": "2026-11-29", "begin_s": 1_795_910_400,
        "reputation": "GREEN", "complaint_rate": 0.001, "traps": 0, "messages": 1880, "bad": False,
    }  # fmt: skip
    assert (second["reputation"], second["bad"], second["traps"], second["complaint_rate"]) == ("RED", True, 3, 0.023)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "Date,Domain,Domain reputation,Spam rate\n2026-11-29,example.com,BAD,0.31%\n",
            {"name": "example.com", "reputation": "BAD", "complaint_rate": 0.0031, "bad": True},
        ),
        (
            "\ufeffday;User-reported spam rate;DKIM success rate\n20261129;0,2 %;100 %\n",
            {"name": "shop.example", "complaint_rate": 0.002, "dkim": 1.0, "bad": False},
        ),
        (
            "name,date,domain,domainReputation,userReportedSpamRatio,spfSuccessRatio,inboundEncryptionRatio\n"
            "x,2026-11-29T00:00:00Z,domains/example.com,REPUTATION_CATEGORY_HIGH,0.0012,0.98,1\n",
            {"name": "example.com", "complaint_rate": 0.0012, "spf": 0.98, "tls": 1.0, "bad": False},
        ),
        (
            'Date,IP reputation,Sample IPs\n"Nov 29, 2026",LOW,192.0.2.3\n',
            {"name": "192.0.2.3", "what": "ip", "reputation": "LOW"},
        ),
        (
            "IP Address\tActivity Period\tFilter Result\tComplaint Rate\tTrap Hits\n"
            "192.0.2.3\t11/29/2026 1:00 AM\tYELLOW\t0.5%\t1\n",
            {"provider": "microsoft", "reputation": "YELLOW", "complaint_rate": 0.005, "traps": 1},
        ),
    ],
)
def test_columns_by_name(text: str, wanted: dict[str, Any]) -> None:
    (found,) = said(text, about="shop.example")
    assert {name: found[name] for name in wanted} == wanted
    assert found["day"] == "2026-11-29"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "neither SNDS's table nor one with a head"),
        ("address,kind\na@x.test,complaint\n", "neither SNDS's table nor one with a head"),
        ("date,spam rate\nsoon,1%\n", "row 2 has no date"),
        ("date,spam rate\n2026-11-29,1%\n", "name it with --domain"),
        ("date,spam rate\n" + "2026-11-29,1%\n" * 100_001, "more than 100,000 rows"),
    ],
)
def test_what_is_none(text: str, why: str) -> None:
    with pytest.raises(ReportRefused, match=why):
        read_table(text.encode(), "x.test" if "100,000" in why else "")


def test_a_correction_is_new() -> None:
    first, again, other = (read_table(text.encode())[0].name for text in (SNDS, SNDS, SNDS.replace("1880", "1881")))
    assert first == again != other
