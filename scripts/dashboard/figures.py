"""What the dashboard costs: memory and processor time with it and without, and how long pages take with a long queue.

PYTHONPATH=scripts python -m dashboard.figures [RECIPIENTS]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import httpx

from dashboard.scene import Scene

PAGES = (
    "", "/queue", "/queue?domain=d7.example", "/queue?sender=nobody@x.y", "/destinations", "/zones?zone=bulk",
    "/campaigns/big", "/suspensions", "/why?what=d7.example", "/sources", "/doubt", "/tasks",
)  # fmt: skip
IDLE_S, OPEN_S = 15, 60


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def used_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shares(scene: Scene, seconds: float) -> str:
    """Of a core, while nothing else happens."""
    pids = {name: scene.pid(name) for name in ("http", "queue")}
    before = {name: used_s(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    return ", ".join(f"{name} {100 * (used_s(pid) - before[name]) / seconds:.2f} %" for name, pid in pids.items())


def visitor(scene: Scene) -> httpx.Client:
    client = httpx.Client(base_url=f"http://127.0.0.1:{scene.http}", timeout=60)
    client.post("/dashboard/login", data={"key": scene.key})
    return client


def idle(scene: Scene) -> None:
    time.sleep(3)
    print(f"  http {resident_mb(scene.pid('http')):.1f} MB; idle: {shares(scene, IDLE_S)}")


def opened(scene: Scene) -> None:
    """As a browser does it that shows *Now*."""
    client = visitor(scene)
    with client.stream("GET", "/dashboard/live") as stream:
        next(stream.iter_bytes())
        pids, before, began = (
            {name: scene.pid(name) for name in ("http", "queue")},
            dict[str, float](),
            time.monotonic(),
        )
        before = {name: used_s(pid) for name, pid in pids.items()}
        while time.monotonic() - began < OPEN_S:
            time.sleep(10)
            client.get("/dashboard")
        took = time.monotonic() - began
        said = ", ".join(f"{name} {100 * (used_s(pid) - before[name]) / took:.2f} %" for name, pid in pids.items())
    print(f"  one open page: {said}; http {resident_mb(pids['http']):.1f} MB")


def long_queue(scene: Scene, recipients: int) -> None:
    scene.crowd(recipients)
    client = visitor(scene)
    for path in PAGES:
        began = time.monotonic()
        size = len(client.get(f"/dashboard{path}").content)
        print(f"  {path or '/'}: {1000 * (time.monotonic() - began):.0f} ms, {size:,} bytes")


def main() -> None:
    recipients = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    for dashboard in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            scene = Scene(Path(folder), dashboard)
            try:
                print(f"dashboard {'on' if dashboard else 'off'}")
                idle(scene)
                if dashboard:
                    opened(scene)
                    print(f"{recipients:,} recipients")
                    long_queue(scene, recipients)
            finally:
                scene.stop()


if __name__ == "__main__":
    main()
