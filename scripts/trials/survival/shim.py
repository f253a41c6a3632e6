"""Libraries in C that are loaded beneath the MTA's processes with LD_PRELOAD; their sources lie in tests/faults."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[3] / "tests" / "faults"
_FLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")


def missing() -> str:
    """Why none can be made; empty if they can."""
    return "" if shutil.which("gcc") else "gcc is not installed: apt-get install gcc libc6-dev"


def compiled(name: str, home: Path) -> Path:
    """The library made of `name`.c, in that folder. Raises CalledProcessError."""
    library = home / f"{name}.so"
    subprocess.run(["gcc", *_FLAGS, "-o", library, SOURCES / f"{name}.c", "-ldl", "-lpthread"], check=True)
    return library
