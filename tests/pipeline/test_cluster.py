"""A cluster runs the same jobs: one master and two workers on loopback, started from the pyspark package."""

import os
import subprocess
import sys
from pathlib import Path

from zonemta_py.pipeline.spark import java

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "pipeline" / "on_cluster.py"


def quick() -> str:
    """Options for JVMs that live for seconds: to compile their code well would take longer than to run it."""
    file, there = java.class_data(java.home())
    shared = f"-XX:SharedArchiveFile={file} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {shared if there and ' ' not in str(file) else ''}"


def test_a_standalone_cluster_gives_the_same_results(tmp_path: Path) -> None:
    """Ingest, tables and a campaign's plan, row for row; the package is shipped to the workers."""
    command = [sys.executable, str(SCRIPT), "--messages", "200", "--rows", "600", "--short", "--folder", str(tmp_path)]
    environment = os.environ | {"JDK_JAVA_OPTIONS": quick()}
    said = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "cluster: spark://127.0.0.1:" in said.stdout
    for table in ("bronze", "deliveries", "outcomes", "deliverability", "spring.plan"):
        assert f"{table}: " in said.stdout
