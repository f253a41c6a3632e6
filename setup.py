"""What pyproject.toml cannot say: the folder plugins is installed as zonemta_py.plugins; how what is installed editable
is found; and, before pip begins, whether plyvel can be had, which has wheels for Python 3.11 and 3.12 only.

Without this, pip ends in a page of C++ errors. Building a wheel of this package needs no plyvel, and is not looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig

from setuptools import find_packages, setup

PLYVEL_WHEELS_BEFORE = (3, 13)
NO_PLYVEL = (
    "zonemta-py: plyvel (LevelDB) has no wheel for Python {}.{} and cannot be built here; install a C++ compiler and "
    "the headers first (Debian: apt-get install g++ python3-dev libleveldb-dev), or the distribution's "
    "python3-plyvel, with an environment made with --system-site-packages, or use Python 3.11 or 3.12"
)


def plyvel_is_there() -> bool:
    """In the environment that pip installs into: it shows its builds another one, by PYTHONPATH."""
    command = [sys.executable, "-I", "-c", "import plyvel"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def plyvel_can_be_built() -> bool:
    compiler = shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++")
    if compiler is None:
        return False
    asked = "#include <Python.h>\n#include <leveldb/db.h>\n"
    command = [compiler, "-E", "-x", "c++", "-I", sysconfig.get_path("include"), "-"]
    return subprocess.run(command, input=asked, text=True, capture_output=True, check=False).returncode == 0


def check() -> None:
    """Raises SystemExit with one sentence."""
    if sys.version_info >= PLYVEL_WHEELS_BEFORE and not plyvel_is_there() and not plyvel_can_be_built():
        raise SystemExit(NO_PLYVEL.format(*sys.version_info[:2]))


if {"egg_info", "dist_info", "editable_wheel", "develop"} & set(sys.argv[1:]):
    check()

setup(
    packages=[*find_packages(include=["zonemta_py*"]), "zonemta_py.plugins"],
    package_dir={"zonemta_py.plugins": "plugins"},
    options={
        "editable_wheel": {"mode": "compat"}
    },  # by a path, which mypy and editors follow, and not by an import hook
)
