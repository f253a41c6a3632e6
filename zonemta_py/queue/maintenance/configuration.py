"""Which keys of the configuration have changed since the queue was last given one: a STANDING record names them.

The record names keys and never their values; nor does the file `configuration` in the queue's folder, which has a keyed
hash of each value, under a key of its own, so that two queues cannot be compared. The first start only writes the file,
and so does one that cannot read it. After a crash between the record and the file, the next start names them again.
Failures: OSError of the disk.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path
from typing import Any

from zonemta_py.config import Config
from zonemta_py.config.difference import leaves_of
from zonemta_py.disk.files import replace_file
from zonemta_py.journal.records import Type
from zonemta_py.journal.records.orders import CONFIGURATION, StandingRecord
from zonemta_py.queue.core.core import Core

FILE = "configuration"
NAMES_MAX = 500
"""In a record; more keys are counted by the last name."""


async def note(core: Core, cause: str = "the MTA was started with them") -> list[str]:
    """Records what has changed; returns the names. Raises OSError."""
    path = core.config.folder / FILE
    salt, before = _read(path)
    now = _hashes(core.config, salt)
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name)) if before else []
    if changed:
        names = changed[:NAMES_MAX]
        names += [f"and {len(changed) - NAMES_MAX} more"] if len(changed) > NAMES_MAX else []
        record = StandingRecord(CONFIGURATION, [CONFIGURATION, ""], names, cause)
        core.disk.ledger.append(Type.STANDING, record.pack())
        await core.disk.journal.stable()
    if now != before:
        replace_file(path, json.dumps({"key": salt.hex(), "hashes": now}).encode() + b"\n", 0o600)
    return changed


def _read(path: Path) -> tuple[bytes, dict[str, str]]:
    """The hash's key and the hashes; of a file that cannot be read a new key, and none."""
    try:
        row: dict[str, Any] = json.loads(path.read_text())
        return bytes.fromhex(row["key"]), {str(name): str(value) for name, value in row["hashes"].items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return secrets.token_bytes(32), {}


def _hashes(config: Config, salt: bytes) -> dict[str, str]:
    """By the key's full name: limits.connections, zones.default.retry."""
    return {
        name: hashlib.blake2b(_written(value).encode("utf-8", "surrogatepass"), key=salt, digest_size=12).hexdigest()
        for name, value in leaves_of("", config.model_dump(), ("name",))
    }


def _written(value: Any) -> str:
    return repr(sorted(value, key=repr) if isinstance(value, set | frozenset) else value)
