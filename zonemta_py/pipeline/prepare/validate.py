"""Addresses that cannot or should not get mail, as `reason`; and typos of large providers, reported but not changed.

Reserved domains: RFC 2606, 6761, 6762, 7686, 8375. Role accounts: RFC 2142 and those in common use.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING

from zonemta_py.pipeline.prepare.settings import Settings
from zonemta_py.pipeline.spark.little_data import small

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BAD_ROW, EMPTY, SYNTAX = "bad row", "no address", "syntax"
RESERVED, IMPOSSIBLE, ROLE, LONG = "reserved domain", "impossible domain", "role account", "fields too long"
REASONS = (BAD_ROW, EMPTY, SYNTAX, IMPOSSIBLE, RESERVED, ROLE, LONG)
ROW_CHARACTERS_MAX = 65_536
"""All fields together; the node takes as much in one."""
RESERVED_TOP = ("test", "example", "invalid", "localhost", "local", "onion", "alt", "internal", "arpa")
RESERVED_DOMAINS = ("example.com", "example.net", "example.org")
ROLES = frozenset(
    [
        "info",
        "marketing",
        "sales",
        "support",
        "noc",
        "abuse",
        "security",
        "postmaster",
        "hostmaster",
        "usenet",
        "news",
        "webmaster",
        "www",
        "uucp",
        "ftp",
        "admin",
        "administrator",
        "root",
        "noreply",
        "no-reply",
        "mailer-daemon",
        "daemon",
        "contact",
        "office",
    ]
)
LARGE = (
    "gmail.com", "googlemail.com", "yahoo.com", "hotmail.com", "outlook.com", "icloud.com", "aol.com", "web.de",
    "gmx.de", "gmx.net", "t-online.de", "comcast.net", "orange.fr", "mail.ru", "yandex.ru", "qq.com", "163.com",
)  # fmt: skip
_REAL = frozenset(
    [
        "mail.com",
        "email.com",
        "ymail.com",
        "gmx.com",
        "gmx.at",
        "gmx.ch",
        "me.com",
        "aim.com",
        "ya.ru",
        "126.com",
        "139.com",
        "hotmail.co",
        "outlook.co",
        "yahoo.co",
        "aol.co",
        "icloud.co",
        "orange.com",
        "mail.de",
        "web.com",
        "email.de",
    ]
)


def validate(rows: DataFrame, settings: Settings) -> DataFrame:
    """Adds `reason` (null: good)."""
    from pyspark.sql import functions as F

    reason = (
        F.when(F.col("broken").isNotNull(), BAD_ROW)
        .when(F.col("raw").isNull() | (F.trim("raw") == ""), EMPTY)
        .when(F.col("address").isNull(), SYNTAX)
        .when(~_possible(), IMPOSSIBLE)
    )
    if not settings.keep_reserved:
        reason = reason.when(_reserved(), RESERVED)
    if settings.drop_roles:
        reason = reason.when(F.substring_index("key", "@", 1).isin(sorted(ROLES)), ROLE)
    long = (F.octet_length("row") > ROW_CHARACTERS_MAX) & (F.length("row") > ROW_CHARACTERS_MAX)  # the first is cheap
    rows = rows.withColumn("top", F.substring_index("domain", ".", -1))  # once, as it takes longer than all else here
    return rows.withColumn("reason", reason.when(long, LONG)).drop("top")


def _possible() -> Column:
    """There is a dot in the domain, a letter after the last one, and it is not a [literal]."""
    from pyspark.sql import functions as F

    letter = (F.col("top") >= "a") & (F.col("top") < chr(ord("z") + 1))
    return (F.col("top") != F.col("domain")) & letter & ~F.col("domain").startswith("[")


def _reserved() -> Column:
    from pyspark.sql import functions as F

    domain = F.col("domain")
    among = [(domain == name) | domain.endswith(f".{name}") for name in RESERVED_DOMAINS]
    return reduce(or_, among, F.col("top").isin(*RESERVED_TOP))


def propose(rows: DataFrame) -> DataFrame:
    """Adds `meant`: the large provider's domain that was probably meant, else null."""
    from pyspark.sql import functions as F

    table = small(rows.sparkSession, sorted(typos().items()), "domain string, meant string")
    return rows.join(F.broadcast(table), "domain", "left")


@cache
def typos() -> dict[str, str]:
    """Misspelt domain → the domain: one letter wrong, missing, doubled, too many, or two swapped."""
    known = {*LARGE, *_REAL}
    found: dict[str, str] = {}
    for domain in LARGE:
        for wrong in _misspelt(domain):
            if wrong not in known and _is_domain(wrong):
                found.setdefault(wrong, domain)
    return found


def _is_domain(text: str) -> bool:
    labels = text.split(".")
    return len(labels) > 1 and all(label and label[0] != "-" and label[-1] != "-" for label in labels)


def _misspelt(domain: str) -> Iterator[str]:
    """Short names are next to other people's names: only swaps in them, and slips in the last label of .com."""
    name, _, top = domain.rpartition(".")
    if top == "com":
        yield from (f"{name}.{wrong}" for wrong in ("con", "cm", "cmo", "om", "ocm", "vom", "xom", "comm", "coom"))
    yield from (name[:i] + name[i + 1] + name[i] + name[i + 2 :] + "." + top for i in range(len(name) - 1))
    if len(name) < 5:
        return
    for i in range(len(name)):
        yield f"{name[:i]}{name[i + 1 :]}.{top}"
        yield f"{name[:i]}{name[i]}{name[i:]}.{top}"
        yield from (f"{name[:i]}{letter}{name[i + 1 :]}.{top}" for letter in string.ascii_lowercase)
