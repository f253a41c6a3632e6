"""This MTA with one thing more to do: limits, STARTTLS, signatures, events, lines about mail; or from another checkout.
What it costs is its figure beside plain's.

Limits: eight of them, of every kind and by every dimension, wide enough never to hold anything back. The rules are on
in every variant, for they have no switch.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmark.contenders import ROOT, BenchError, Zonemta

SIGNED_DOMAIN = "src.test"
_WIDE = 10**12
PREFIX = "zonemta@"


def limits(_: Path) -> dict[str, Any]:
    def throttle(name: str, *per: str, **most: object) -> dict[str, Any]:
        return {"name": name, "per": list(per), **most}

    return {
        "throttles": [
            throttle("all", messages=f"{_WIDE}/s", recipients=f"{_WIDE}/s"),
            throttle("zone", "zone", bytes=f"{_WIDE}/s", connections=1000),
            throttle("site", "site", messages=f"{_WIDE}/min", connections=1000),
            throttle("provider", "provider", recipients=f"{_WIDE}/min"),
            throttle("source", "source", messages=f"{_WIDE}/hour", new_connections=f"{_WIDE}/s"),
            throttle("source-site", "source", "site", recipients=f"{_WIDE}/hour"),
            throttle("tenant", "tenant", messages=f"{_WIDE}/day"),
            throttle("campaign", "campaign", messages=f"{_WIDE}/day"),
        ]
    }


def ed25519_key(folder: Path) -> dict[str, Any]:
    return _signed(folder, ed25519.Ed25519PrivateKey.generate())


def rsa_key(folder: Path) -> dict[str, Any]:
    return _signed(folder, rsa.generate_private_key(65537, 2048))


def _signed(folder: Path, key: PrivateKeyTypes) -> dict[str, Any]:
    path = folder / "dkim.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return {"dkim": [{"domain": SIGNED_DOMAIN, "selector": "bench", "key": str(path)}]}


def events(folder: Path) -> dict[str, Any]:
    """Every event, into a file on the disk of the queue."""
    return {"event_sinks": [{"name": "all", "kind": "file", "path": str(folder / "events.jsonl"), "keep": 1}]}


def events_down(_: Path) -> dict[str, Any]:
    """Every event, to a receiver that is not there: memory, the ring, then the oldest go."""
    return {"event_sinks": [{"name": "all", "kind": "webhook", "url": "http://127.0.0.1:9/", "retry_max_s": 1}]}


def logged(_: Path) -> dict[str, Any]:
    """A line for each message and each answer, into a file; plain has none. Metrics are counted in both."""
    return {"log": {"mail": True}}


def logged_json(_: Path) -> dict[str, Any]:
    return {"log": {"mail": True, "format": "json"}}


SECTIONS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "limits": limits,
    "starttls": lambda _: {},
    "ed25519": ed25519_key,
    "rsa2048": rsa_key,
    "events": events,
    "events-down": events_down,
    "zonemta-logged": logged,
    "zonemta-logged-json": logged_json,
}


class Variant(Zonemta):
    """name: of SECTIONS. The sink offers STARTTLS where the zone is to use it."""

    def __init__(self, name: str, folder: Path, sink_port: int) -> None:
        self.name = name
        folder.mkdir(parents=True, exist_ok=True)
        self.starttls = name == "starttls"
        zone = {"tls": "opportunistic"} if self.starttls else {}
        super().__init__(folder, sink_port, zone, SECTIONS[name](folder))


def checked_out(revision: str, folder: Path) -> Path:
    """The files of a revision, in a folder of that name below `folder`. Raises BenchError if there is none."""
    short = _git("rev-parse", "--short", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    if short.returncode:
        raise BenchError(f"there is no revision {revision!r} in this repository; give one that git log shows")
    made = folder / short.stdout.strip()
    made.mkdir(parents=True)
    packed = subprocess.Popen(["git", "-C", str(ROOT), "archive", made.name], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(made)], stdin=packed.stdout, check=True)
    packed.wait()
    return made


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)


class Checkout(Zonemta):
    """The MTA of another folder, such as the commit before a change: what that change costs."""

    def __init__(self, root: Path, folder: Path, sink_port: int) -> None:
        self.root = root
        self.name = f"{PREFIX}{root.name}"
        super().__init__(folder, sink_port)
