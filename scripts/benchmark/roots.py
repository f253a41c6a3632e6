"""Roots for other mail servers, which Debian cannot have installed beside each other: each runs in one of its own
(chroot) with what it needs and the users it insists on, so that nothing of the system is changed.

`scripts/prepare --dev` unpacks their packages. Needs root.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

UNPACKED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zonemta-tests" / "receivers"
USERS = {"Debian-exim": 60_001, "opensmtpd": 60_002, "opensmtpq": 60_003, "smmsp": 60_004}
"""Those that they insist on; in their own roots, they have numbers that nobody else has."""
_LIBRARY = re.compile(r"(/\S+) \(0x")


def missing(name: str) -> str:
    """Why it cannot run here; "" where it can."""
    if not (UNPACKED / name).is_dir():
        return f"{UNPACKED / name} is not there: run scripts/prepare --dev as root on Debian 12"
    if os.geteuid() != 0:
        return f"{name} runs only when started as root, and this is not"
    return ""


def make(folder: Path, name: str, programs: Iterable[str], host: str) -> None:
    """folder: the root, which is there. programs: paths of what it runs, its own as in the package, others as on this
    machine. host: what the machine is called in it."""
    for inner in ("dev", "etc", "tmp", "run", "var", "var/run", "var/spool"):
        (folder / inner).mkdir()
    (folder / "tmp").chmod(0o1777)
    os.mknod(folder / "dev" / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (folder / "dev" / "null").chmod(0o666)
    for program in programs:
        mine = UNPACKED / name / program.lstrip("/")
        _copy(folder, mine if mine.exists() else Path(program), program)
    users = [("root", 0), ("nobody", 65_534), *USERS.items()]
    write(folder, "etc/passwd", "".join(f"{user}:x:{uid}:{uid}::/:/bin/sh\n" for user, uid in users))
    write(folder, "etc/group", "".join(f"{group}:x:{gid}:\n" for group, gid in [*users, ("nogroup", 65_534)]))
    write(folder, "etc/hosts", f"127.0.0.1 localhost {host}\n")
    write(folder, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")


def write(folder: Path, name: str, text: str, mode: int = 0o644) -> None:
    """A file in that root."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _copy(folder: Path, program: Path, name: str) -> None:
    """The program, and every library it needs that is not there yet."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for source, place in [(program, name), *((Path(path), path) for path in _LIBRARY.findall(said))]:
        target = folder / place.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
