"""The Java that Spark runs on: found, checked, and started faster with a class-data archive.

Spark 4 needs Java 17 or 21 with the module jdk.incubator.vector. An archive of the classes that a session loads (JEP
350) halves its start; it is written by a JVM when it ends, into the user's cache folder under a name of its own, and
renamed when it is whole, so that any number of sessions may start at once. Without one everything works, only slower.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from subprocess import Popen, TimeoutExpired

FITTING = (17, 21)
REMEDY = "install one with `apt-get install openjdk-17-jre-headless`, or name its folder in JAVA_HOME"
_PLACES = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"), Path("/opt"))
_DUMP_S = 60
_STALE_S = 3600


class Unavailable(Exception):
    """Spark cannot run here; one sentence with what is missing and the remedy."""


def home() -> Path:
    """Folder of a Java that Spark can use: JAVA_HOME, what `java` is, then what is installed. Raises Unavailable."""
    seen: list[str] = []
    for folder in _candidates():
        release = _release(folder)
        major = int(match[1]) if (match := re.match(r"(\d+)", release.get("JAVA_VERSION", ""))) else 0
        if major in FITTING and "jdk.incubator.vector" in release.get("MODULES", "jdk.incubator.vector").split():
            return folder
        if major:
            seen.append(f"{folder} (Java {major})")
    found = f"; {', '.join(dict.fromkeys(seen))} cannot be used" if seen else ""
    raise Unavailable(f"Spark needs Java 17 or 21, and none was found{found}; {REMEDY}")


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if program := shutil.which("java"):
        yield Path(program).resolve().parent.parent
    for place in _PLACES:
        if place.is_dir():
            yield from sorted(folder for folder in place.iterdir() if (folder / "bin" / "java").exists())


def _release(folder: Path) -> dict[str, str]:
    """The file `release` that every Java since 9 has: KEY="value" lines."""
    try:
        lines = (folder / "release").read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {key: value.strip('"') for key, _, value in pairs}


def cache() -> Path:
    """Where this user's class-data archives are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zonemta"


def class_data(java: Path) -> tuple[Path, bool]:
    """The archive's file for this Java and pyspark, and whether it is there.

    If it is not, the path is a name of this process's own for the JVM to write to; `keep` gives it its name.
    """
    runtime = _release(java).get("JAVA_RUNTIME_VERSION", "") or _release(java).get("JAVA_VERSION", "unknown")
    key = re.sub(r"[^0-9A-Za-z.+-]", "_", f"spark-{version('pyspark')}-java-{runtime}")
    file = cache() / f"{key}.jsa"
    _sweep(file.parent)  # each time: whoever is killed after the archive was made would leave 200 MB for good
    if file.is_file():
        return file, True
    return file.with_name(f"{key}.{os.getpid()}.new"), False


def _sweep(folder: Path) -> None:
    """Removes what JVMs left that were killed while writing."""
    for path in folder.glob("*.new"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _STALE_S:
                path.unlink()


def writable(folder: Path) -> bool:
    """Makes the cache folder; False where that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def keep(fresh: Path, stop: Callable[[], Popen[bytes] | None]) -> None:
    """To be called when the program ends: ends the JVM, waits for its archive, and puts it in its place."""
    process = stop()
    if process is None:
        return
    with contextlib.suppress(OSError, TimeoutExpired):
        if process.stdin:
            process.stdin.close()  # tells the JVM to end
        process.wait(_DUMP_S)
        key = fresh.name.removesuffix(".new").rpartition(".")[0]
        fresh.replace(fresh.with_name(f"{key}.jsa"))
