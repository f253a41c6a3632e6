"""A cluster runs the same jobs: one master and two workers on loopback, started from the pyspark package."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from zonemta_py.pipeline.spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "pipeline"


def quick() -> str:
    """Options for JVMs that live for seconds: to compile their code well would take longer than to run it."""
    file, there = java.class_data(java.home())
    shared = f"-XX:SharedArchiveFile={file} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {shared if there and ' ' not in str(file) else ''}"


def test_a_standalone_cluster_gives_the_same_results(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ingest, tables and a campaign's plan, row for row; the package is shipped to the workers."""
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    import on_cluster

    monkeypatch.setenv("JDK_JAVA_OPTIONS", quick())
    status = on_cluster.main(["--messages", "200", "--rows", "600", "--short", "--folder", str(tmp_path)], spark)
    said, complaints = capsys.readouterr()
    assert status == 0, said + complaints
    assert "cluster: spark://127.0.0.1:" in said
    for table in ("bronze", "deliveries", "outcomes", "deliverability", "spring.plan"):
        assert f"{table}: " in said
