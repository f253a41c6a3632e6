"""Normalising and validating: what Spark makes of addresses is what the MTA's own parser makes of them."""

import random
from typing import TYPE_CHECKING, Any

import pytest

from zonemta_py.mail.address import AddressRefused, parse_rcpt
from zonemta_py.mail.addresses.domain import canonical
from zonemta_py.mail.addresses.written import SPACES, bare
from zonemta_py.pipeline.prepare.normalise import normalise
from zonemta_py.pipeline.prepare.settings import Settings
from zonemta_py.pipeline.prepare.validate import (
    EMPTY,
    IMPOSSIBLE,
    LARGE,
    RESERVED,
    RESERVED_DOMAINS,
    RESERVED_TOP,
    ROLE,
    ROLES,
    SYNTAX,
    propose,
    typos,
    validate,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHOSEN = [
    "a@b.net", "A.B@B.NET", " a@b.net\t", "\ufeffa@b.net", "a@b.net\u00a0", "a..b@c.net", ".a@c.net", "a.@c.net", "a@",
    "@b.net", "a", "", " ", "a b@c.net", '"a b"@c.net', '"a\\"b"@c.net', "a@b@c.net", "<a@b.net>", "a@b.net>",
    "Ann <a@b.net>",
    '"A, B" <a@B.net>', "mailto:a@b.net", "A <a@b.net>, B <c@d.net>",
    "a@[192.0.2.1]",
    "a@[IPv6:::1]", "a@b", "postmaster", "postmaster@b.net", "a@1.2.3.4", "a@b.123", "a@-b.net", "a@b-.net", "a@b..net",
    "a@b.net.", "a@bücher.de", "A@BÜCHER.DE", "a@xn--bcher-kva.de", "ü@b.net", "ü@bücher.de", "a@ＧＭＡＩＬ.com",
    "a@b。net",
    "a@☃.net", "a@\u0660.net", "a@faß.de", "a_b@c_d.net", "a@b.net SIZE=1", "a@b.net> SIZE=1", "@x:a@b.net",
    "a\x00@b.net",
    "a@b\n.net", "a@b.net\nb@c.net", "info@b.net", "INFO@b.net", "info.x@b.net", "a@example.com", "a@x.example.com",
    "a@x.test",
    "a@localhost", "a@notexample.com", "a@x.local", "x" * 250 + "@b.net", "x" * 240 + "@b.net",
    "a@" + "b" * 64 + ".net",
    "a@" + ".".join(["b" * 60] * 5) + ".net", "a@gmial.com", "a@gmail.con", "a@mail.com", "'a'@b.net", "a+b@c.net",
    "İ@b.net",
]  # fmt: skip


def generated(count: int) -> list[str]:
    """Addresses that are nearly right: pieces put together, and one character changed in half of them."""
    chance = random.Random(4)
    pieces = [
        "a",
        "B",
        "x.y",
        ".",
        "..",
        "@",
        "-",
        "_",
        "é",
        "日本",
        '"',
        " ",
        "net",
        "COM",
        "1",
        "+",
        "'",
        "\\",
        "[",
        "]",
    ]
    made = []
    for number in range(count):
        local = "".join(chance.choices(pieces, k=chance.randint(1, 4)))
        domain = "".join(chance.choices([*pieces, "bücher", "gmail", "b-c"], k=chance.randint(1, 4))) + ".net"
        made.append(
            f"{local}@{domain}" if number % 2 else f"user{number}@d{number % 7}.{chance.choice(['net', 'COM'])}"
        )
    return made


def expected(text: str) -> str | None:
    """The reference, in plain Python: bare, parsed by the receivers' parser, domain canonical."""
    text = bare(text)
    try:
        found = parse_rcpt(f"<{text}>", smtputf8=True)[0].address
    except AddressRefused:
        return None
    local, at, domain = found.rpartition("@")
    if not at or text.rpartition("@")[0] != local or text.rpartition("@")[2].lower() != domain.lower():
        return None
    domain = canonical(domain)
    return f"{local}@{domain}" if domain.isascii() else None


def expected_reason(text: str, address: str | None) -> str | None:
    if not text.strip():
        return EMPTY
    if address is None:
        return SYNTAX
    labels = address.rpartition("@")[2].split(".")
    if len(labels) < 2 or not labels[-1][:1].isalpha() or labels[-1].endswith("]"):
        return IMPOSSIBLE
    if labels[-1] in RESERVED_TOP or ".".join(labels[-2:]) in RESERVED_DOMAINS:
        return RESERVED
    return ROLE if address.lower().partition("@")[0] in ROLES else None


@pytest.fixture(scope="module")
def judged(spark: "SparkSession") -> list[Any]:
    rows = [(text, "", 0, None) for text in [*CHOSEN, *generated(2000)]]
    frame = spark.createDataFrame(rows, "raw string, row string, marks bigint, broken string")
    return propose(validate(normalise(frame), Settings("x", drop_roles=True))).collect()


def test_addresses_are_what_the_receivers_make_of_them(judged: list[Any]) -> None:
    """The same are accepted, and spelled the same: local part as it came, domain in lower case and A-labels."""
    assert {row.raw: row.address for row in judged if row.raw.strip(SPACES)} == {
        row.raw: expected(row.raw) for row in judged if row.raw.strip(SPACES)
    }
    assert sum(row.address is not None for row in judged) > 1000


def test_reasons(judged: list[Any]) -> None:
    """Each row that is not good has the first reason that holds."""
    assert {row.raw: row.reason for row in judged} == {row.raw: expected_reason(row.raw, row.address) for row in judged}
    assert {row.reason for row in judged} == {None, EMPTY, SYNTAX, IMPOSSIBLE, RESERVED, ROLE}


def test_typos_are_proposed_and_nothing_is_changed(judged: list[Any]) -> None:
    """gmial.com stays gmial.com; mail.com is somebody else's name and no typo."""
    meant = {row.raw: row.meant for row in judged}
    assert (meant["a@gmial.com"], meant["a@gmail.con"], meant["a@mail.com"]) == ("gmail.com", "gmail.com", None)
    assert next(row.address for row in judged if row.raw == "a@gmial.com") == "a@gmial.com"


def test_no_large_provider_is_a_typo_of_another() -> None:
    """What is proposed is never a name that is known."""
    assert not set(typos()) & set(LARGE)
    assert set(typos().values()) <= set(LARGE)


def test_roles_and_reserved_domains_can_be_kept(spark: "SparkSession") -> None:
    """Both by setting."""
    frame = spark.createDataFrame(
        [("info@b.net", "", 0, None), ("a@x.test", "", 0, None), ("a@x.org", "y" * 70_000, 0, None)],
        "raw string, row string, marks bigint, broken string",
    )
    rows = validate(normalise(frame), Settings("x", keep_reserved=True)).collect()
    assert [row.reason for row in rows] == [None, None, "fields too long"]
