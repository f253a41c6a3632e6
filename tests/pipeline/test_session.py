"""The Spark session: which Java, how it starts, and what is said where it cannot."""

import importlib.util
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from zonemta_py.cli.app import main
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.pipeline.spark import java, session

MODULES = "java.base java.logging jdk.incubator.vector"


def make_java(folder: Path, version: str, modules: str = MODULES) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return folder


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: its places are below here."""
    monkeypatch.setattr(java, "_PLACES", (tmp_path / "jvm",))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "jvm").mkdir()
    return tmp_path


def test_java_home_comes_first_then_the_path_then_what_is_installed(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a person expects; one that does not fit is passed over."""
    installed = make_java(places / "jvm" / "java-21", "21.0.4")
    assert java.home() == installed
    on_path = make_java(places / "other", "17.0.15")
    (places / "bin").mkdir()
    (places / "bin" / "java").symlink_to(on_path / "bin" / "java")
    assert java.home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(make_java(places / "old", "11.0.2")))
    assert java.home() == on_path
    monkeypatch.setenv("JAVA_HOME", str(make_java(places / "named", "17.0.1")))
    assert java.home() == places / "named"


@pytest.mark.parametrize(("version", "modules"), [("11.0.2", MODULES), ("25.0.1", MODULES), ("17.0.1", "java.base")])
def test_a_java_that_does_not_serve_is_named_with_the_remedy(places: Path, version: str, modules: str) -> None:
    """Too old, too new, or without the module that Spark's launcher demands."""
    folder = make_java(places / "jvm" / "one", version, modules)
    with pytest.raises(session.Unavailable) as caught:
        java.home()
    assert str(caught.value) == (
        f"Spark needs Java 17 or 21, and none was found; {folder} (Java {version.partition('.')[0]}) cannot be used; "
        "install one with `apt-get install openjdk-17-jre-headless`, or name its folder in JAVA_HOME"
    )


def test_without_any_java_the_command_says_what_to_install(
    places: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence and status 69, no traceback."""
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    assert main(["lake", "ingest", "--archive", str(places), "--lake", str(places / "lake")]) == Exit.UNAVAILABLE
    assert capfd.readouterr().err == (
        "zonemta: Spark needs Java 17 or 21, and none was found; install one with `apt-get install "
        "openjdk-17-jre-headless`, or name its folder in JAVA_HOME\n"
    )


@pytest.mark.parametrize("name", ["pyspark", "pyarrow"])
def test_without_the_extra_the_command_says_what_to_install(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The MTA itself needs none of it."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one, *more: None if one == name else find(one, *more))
    assert main(["lake", "ingest", "--archive", str(tmp_path), "--lake", str(tmp_path / "lake")]) == Exit.UNAVAILABLE
    expected = f"zonemta: {name}: not installed; `pip install 'zonemta-py[pipeline]'` installs it\n"
    assert capfd.readouterr().err == expected


def test_help_does_not_load_spark() -> None:
    """The command line starts fast for those who do not analyse."""
    code = "import sys; from zonemta_py.cli.app import main; main(['lake', '--help']); print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.endswith("False\n")


# -- what it is like


def test_it_is_of_this_machine_only(spark: SparkSession) -> None:
    """Nothing listens beyond the loopback interface, and there is no web page."""
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.driver.host") == settings.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_there_is_one(spark: SparkSession) -> None:
    """Whoever asks again gets the one that runs."""
    assert session.session("local[1]") is spark


# -- class data


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return java.cache()


class Ended:
    """A JVM's process that has written its archive, or has not, when it is waited for."""

    stdin = None

    def __init__(self, write: Callable[[], object]) -> None:
        self._write = write

    def wait(self, timeout: float) -> int:
        self._write()
        return 0


def test_class_data_is_made_once_and_named_by_what_it_depends_on(cache: Path, tmp_path: Path) -> None:
    """Another Java or pyspark has another; it gets its name when it is whole."""
    home = make_java(tmp_path / "java", "17.0.15")
    cache.mkdir()
    fresh, there = java.class_data(home)
    assert not there
    assert fresh.name.endswith(f"-java-17.0.15.{os.getpid()}.new")
    process: Any = Ended(lambda: fresh.write_bytes(b"classes"))
    java.keep(fresh, lambda: process)
    assert java.class_data(home) == (fresh.with_name(fresh.name.removesuffix(f".{os.getpid()}.new") + ".jsa"), True)
    assert java.class_data(make_java(tmp_path / "other", "21.0.1"))[1] is False


def test_a_jvm_that_wrote_nothing_does_no_harm(cache: Path, tmp_path: Path) -> None:
    """Killed, or its disk full: the next session tries again."""
    cache.mkdir()
    process: Any = Ended(lambda: None)
    fresh, _ = java.class_data(make_java(tmp_path / "java", "17.0.15"))
    java.keep(fresh, lambda: process)
    java.keep(fresh, lambda: None)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("made", [False, True], ids=["before the archive is made", "when it is there"])
def test_leftovers_are_swept(made: bool, cache: Path, tmp_path: Path) -> None:
    """Half-written archives, of 200 MB each, go after an hour; one that is being written stays."""
    home = make_java(tmp_path / "java", "17.0.15")
    cache.mkdir()
    kept = []
    if made:
        fresh, _ = java.class_data(home)
        process: Any = Ended(lambda: fresh.write_bytes(b"classes"))
        java.keep(fresh, lambda: process)
        kept = list(cache.iterdir())
    old, young = cache / "x.1.new", cache / "x.2.new"
    for path in (old, young):
        path.write_bytes(b"")
    os.utime(old, (time.time() - 7200,) * 2)
    assert java.class_data(home)[1] is made
    assert sorted(cache.iterdir()) == sorted([*kept, young])


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session starts slower, that is all."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert session._class_data(make_java(tmp_path / "java", "17.0.15")) == []


# -- elsewhere


def test_the_package_is_shipped_whole(tmp_path: Path) -> None:
    """A worker that has never heard of zonemta_py reads the journal with what it is sent."""
    target = session.package(tmp_path)
    assert "zonemta_py/pipeline/SCHEMA.md" not in zipfile.ZipFile(target).namelist()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import zonemta_py.pipeline.lake.bronze as b; "
        "import zonemta_py.pipeline.journal.source; print(b.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    assert done.stdout.strip().startswith(str(target))
