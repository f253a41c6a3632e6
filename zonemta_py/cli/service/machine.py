"""What the machine gives the MTA: ports, open files, disk, memory, a clock that is right, a quick Python, a user."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import socket
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from zonemta_py.cli.run.ask_queue import owner
from zonemta_py.cli.service.diagnosis import Diagnosis, note, ok, problem, warning
from zonemta_py.config import Config, ConfigError, Listener, processes, sender_count
from zonemta_py.disk.space import LEAST_BYTES, free_bytes
from zonemta_py.journal import folders
from zonemta_py.logs.causes import cause
from zonemta_py.metrics.quantities import size
from zonemta_py.processes import privileges
from zonemta_py.processes.roles import FILES_BESIDES_LEASES

SYNCS = 9
SLOW_SYNC_MS = 30.0
MEMORY_LEAST = 512 * 1024 * 1024
ROOM_LEAST = 1024**3
CONNECT_S = 5.0
_TIME_ERROR = 5
_PRIVILEGED_BELOW = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


def findings(config: Config, running: bool | None) -> Iterator[Diagnosis]:
    """running: None if that is not known."""
    yield from (_port(listener, config, running) for listener in config.all_listeners)
    yield from _files(config)
    yield from _disk(config)
    yield _memory()
    yield clock()
    yield interpreter()


def _port(listener: Listener, config: Config, running: bool | None) -> Diagnosis:
    about = f"port {listener.address}:{listener.port} of {listener.name}"
    family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
    if running:
        return ok(about, "the MTA is running")
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((listener.address, listener.port))
        except OSError as error:
            if running is None and error.errno == errno.EADDRINUSE:
                return note(about, "is in use, by the MTA or by another program")
            return problem(about, (error.strerror or str(error)).lower(), _remedy(error, listener, config))
    return ok(about, "is free")


def _remedy(error: OSError, listener: Listener, config: Config) -> str:
    if error.errno == errno.EACCES:
        user = config.server.user or "zonemta"
        return f'start as root with server.user = "{user}", or use a port from {_unprivileged()} on'
    if error.errno == errno.EADDRINUSE:
        return f"stop the program that uses it (`ss -ltnp sport = :{listener.port}` names it), or use another port"
    return "use an address that this machine has"


def _unprivileged() -> int:
    try:
        return int(_PRIVILEGED_BELOW.read_text())
    except (OSError, ValueError):
        return 1024


def _files(config: Config) -> Iterator[Diagnosis]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    connections = sum(zone.connections for zone in config.zones if not zone.pulled)
    wanted = max(
        connections // sender_count(config) + 1 + FILES_BESIDES_LEASES,
        config.limits.connections // processes(config.server.receivers) + FILES_BESIDES_LEASES,
    )
    if hard != resource.RLIM_INFINITY and hard < wanted:
        yield warning(
            "open files", f"a process may have {hard:,}, and the configuration may need {wanted:,}",
            f"raise the limit (LimitNOFILE={wanted} in the systemd unit, or ulimit -n)",
        )  # fmt: skip
    else:
        yield ok("open files", f"{wanted:,} may be needed, which is allowed")


def _disk(config: Config) -> Iterator[Diagnosis]:
    """Of the MTA's folder, and of those of its queues that are on other disks, as far as who asks may look into it."""
    yield from _disk_of(config, config.folder)
    if hidden(config):
        return
    known = _device(config.folder)
    for place in folders.every(config.folder).values():
        if not folders.is_gone(place) and _device(place) != known:
            yield from _disk_of(config, place)


def _device(folder: Path) -> int:
    try:
        return folder.stat().st_dev
    except OSError:
        return 0


def _disk_of(config: Config, folder: Path) -> Iterator[Diagnosis]:
    there = next(place for place in (folder, *folder.parents) if os.path.isdir(place))  # a closed one is none
    about = f"disk of {folder}"
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        yield note(about, f"{there} cannot be written by this user", "run doctor as the user that runs the MTA")
        return
    free = free_bytes(there)
    reserve = max(LEAST_BYTES, config.queue.reserve_bytes)
    if free < reserve:
        yield problem(about, f"{size(free)} free, so mail is refused", "free space, or move server.folder")
    elif free < reserve + ROOM_LEAST:
        yield warning(about, f"only {size(free)} free", "free space, or move server.folder")
    else:
        yield ok(about, f"{size(free)} free")
    kind = _file_system(there)
    if kind in ("nfs", "nfs4", "cifs", "fuse.sshfs"):
        yield problem(about, f"is a network file system ({kind}), where a synced write may be lost", "use a local disk")
    elif kind == "tmpfs":
        yield warning(about, "is memory (tmpfs): the queue is lost when the machine stops", "use a disk")
    try:
        ms = _sync_ms(there)
    except OSError as error:
        yield problem(about, f"a write fails ({cause(error)})", "free space, or repair the disk")
        return
    if ms > SLOW_SYNC_MS:
        yield warning(
            about, f"a synced write takes {ms:.1f} ms", "mail is acknowledged after one: use an SSD for much mail"
        )
    else:
        yield ok(about, f"a synced write takes {ms:.1f} ms")


def _file_system(folder: Path) -> str:
    """Of the mount that holds the folder; "" if it is not known."""
    found, best = "", -1
    try:
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, where, kind = line.split(" ")[:3]
            place = Path(where.encode().decode("unicode_escape"))
            if len(place.parts) >= best and folder.resolve().is_relative_to(place):
                found, best = kind, len(place.parts)
    except (OSError, ValueError):
        return ""
    return found


def _sync_ms(folder: Path) -> float:
    """Median of some synced writes of a page. Raises OSError."""
    times = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times)


def _memory() -> Diagnosis:
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return note("memory", "how much is available cannot be read")
    if free < MEMORY_LEAST:
        return warning("memory", f"{size(free)} available", "the MTA wants some 300 MB: stop other programs")
    return ok("memory", f"{size(free)} available")


def clock() -> Diagnosis:
    """Whether the kernel believes that its clock is kept right (adjtimex(2))."""
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    except (OSError, AttributeError):
        state = -1
    if state < 0:
        return note("clock", "the system does not say whether it is synchronized")
    if state == _TIME_ERROR:
        return warning(
            "clock", "is not synchronized; signatures, DSNs and sending hours use it",
            "run systemd-timesyncd, chrony or ntpd (a container shares its host's clock)",
        )  # fmt: skip
    return ok("clock", "is synchronized")


def interpreter() -> Diagnosis:
    """Whether Python was built with profile-guided optimization; distributions' own are, and say so nowhere."""
    version, options = platform.python_version(), sysconfig.get_config_var("CONFIG_ARGS") or ""
    if "--enable-optimizations" in options or sys.base_prefix == "/usr":
        return ok("Python", f"{version}, an optimized build")
    return note(
        "Python", f"{version} was built without optimizations: a message takes about an eighth more processor time",
        "take the distribution's Python, or build with --enable-optimizations (pyenv: PYTHON_CONFIGURE_OPTS)",
    )  # fmt: skip


def outward() -> list[str]:
    """The addresses from which this machine would send, IPv4 and IPv6; none if it has no way out. Nothing is sent."""
    found = []
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((somewhere, 9))
            found.append(str(sock.getsockname()[0]))
    return found


def port_25(host: str, port: int = 25) -> Diagnosis:
    """Whether mail can leave at all: many providers block port 25 until they are asked."""
    about = f"way out to {host}:{port}"
    try:
        with socket.create_connection((host, port), CONNECT_S) as sock:
            sock.settimeout(CONNECT_S)
            banner = sock.recv(512).partition(b"\r\n")[0].decode("utf-8", "replace")
            sock.sendall(b"QUIT\r\n")
    except OSError as error:
        words = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
        return problem(about, words, "ask your provider to open port 25 outwards, or send through a smart host")
    if not banner.startswith("220"):
        return warning(about, f"answers {banner!r}", "see what the server has against this machine")
    return ok(about, f"answers {banner!r}")


def user_findings(config: Config) -> Iterator[Diagnosis]:
    """For root: about `server.user`. For others: whether they see what the MTA's user sees."""
    if os.geteuid():
        yield from _others(config)
        return
    if not config.server.user:
        yield warning(
            "user", "started as root, the MTA stays root", 'set server.user = "zonemta", a user of its own'
        )  # fmt: skip
        return
    try:
        who = privileges.identity(config)
    except ConfigError as error:
        yield _problem(str(error))
        return
    if who:
        yield from _who(config, who)


def _who(config: Config, who: privileges.Identity) -> Iterator[Diagnosis]:
    wrong = privileges.unreadable(config, who)
    if config.folder.is_dir() and (sentence := privileges.stranger(config.folder, who)):
        wrong.append(sentence)
    yield from map(_problem, wrong)
    if not wrong:
        yield ok("user", f"{who.name} may read all that the configuration names")


def _problem(sentence: str) -> Diagnosis:
    words, _, remedy = sentence.partition("; ")
    return problem("user", words, remedy)


def _others(config: Config) -> Iterator[Diagnosis]:
    if hidden(config):
        yield note(
            "user", f"{privileges.me()} may not look into {config.folder}, so the check is incomplete",
            f"run doctor as {owner(config.folder)}, or as root",
        )  # fmt: skip


def hidden(config: Config) -> bool:
    """Whether the queue's folder is closed to who asks."""
    try:
        return config.folder.is_dir() and not os.access(config.folder, os.R_OK | os.X_OK, effective_ids=True)
    except PermissionError:
        return True
