"""What every section of the configuration shares: strictness, docstrings, the checks of values, shipped data files."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
Port = Annotated[int, Field(ge=1, le=65535)]
Network = str
_DOMAIN_RULE = re.compile(r"\*|(\*\.)?[^\s*@.]+(\.[^\s*@.]+)*\.?")


class ConfigError(Exception):
    """One sentence: file, key, what is wrong, what to do."""


class Section(BaseModel):
    """A table. Unknown keys are refused. The docstrings of its keys are read from the source by `reference`, not by
    pydantic: reading them takes longer than everything else done for the configuration at a start."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def sender_patterns(values: list[str]) -> list[str]:
    """Raises ValueError for what is neither an address nor a domain rule."""
    for value in values:
        local, at, domain = value.rpartition("@")
        if at and (not local or "*" in value or any(map(str.isspace, value))):
            raise ValueError(f"{value!r} is not a sender such as ann@example.com, example.com, *.example.com or *")
        domain_rules([domain])
    return values


def networks(values: list[str]) -> list[str]:
    """In one spelling. Raises ValueError for what is not a network, and for IPv4 that is written as IPv6: clients have
    their IPv4 address here, however they came."""
    found = []
    for value in values:
        try:
            network = ipaddress.ip_network(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is not a network such as 192.0.2.0/24 ({error})") from None
        inner = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
        if inner is not None and network.prefixlen >= 96:
            raise ValueError(f"{value!r} is IPv4, mapped into IPv6; write {inner}/{network.prefixlen - 96}")
        found.append(str(network))
    return found


def ip_address(value: str) -> str:
    """Raises ValueError for what is not an IP address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address such as 127.0.0.1 or ::1") from None
    return value


def domain_rules(values: list[str]) -> list[str]:
    """Raises ValueError for what is neither a domain nor *.domain nor *."""
    for value in values:
        if not _DOMAIN_RULE.fullmatch(value):
            raise ValueError(f"{value!r} is not a domain such as example.com or *.example.com")
    return values


def shipped(name: str) -> Path:
    """Where a data file shipped with the program is (rules.toml, providers.toml), as an operator would name it: in the
    checkout's config/, to which this package holds links, or in the installed package, which has copies."""
    return Path(__file__).with_name(name).resolve()
