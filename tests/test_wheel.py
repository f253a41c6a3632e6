"""What is installed is what is in the repository, and the bundled plugins are found there."""

import subprocess
import sys
import tomllib
import venv
import zipfile
from functools import partial
from pathlib import Path

import pytest
import setuptools
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).parents[1]


def tracked(*folders: str) -> list[str]:
    done = subprocess.run(["git", "ls-files", *folders], cwd=TOP, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (TOP / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, for building leaves folders behind."""
    copy, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in tracked("zonemta_py", "plugins", "pyproject.toml", "setup.py", "LICENSE"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((TOP / name).read_bytes())
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out), str(copy)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, capture_output=True, timeout=300)
    (made,) = out.iterdir()
    return made


def test_all_of_it_is_installed(wheel: Path) -> None:
    """Every file of the package, and no other; the folder plugins as zonemta_py.plugins."""
    installed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    ours = {f"zonemta_py/{name}" if name.startswith("plugins/") else name for name in tracked("zonemta_py", "plugins")}
    assert installed == ours


def test_an_installed_copy_finds_the_bundled_plugins(wheel: Path, tmp_path: Path) -> None:
    """Far from any checkout."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "zonemta.toml").write_text('[plugins]\nenabled = ["custom_routing"]\n')
    code = (
        "from zonemta_py.plugin.loading import find; import zonemta_py.plugins.custom_routing as bundled;"
        " print(find('custom_routing', None).file, bundled.__file__)"
    )
    run = {"cwd": tmp_path, "env": {"PYTHONPATH": str(site)}, "capture_output": True, "text": True, "timeout": 60}
    told = subprocess.run([sys.executable, "-c", code], check=False, **run)  # type: ignore[call-overload]
    assert told.stdout.split() == [str(site / "zonemta_py/plugins/custom_routing.py")] * 2, told.stderr
    check = [sys.executable, "-m", "zonemta_py", "config", "check", "zonemta.toml"]
    done = subprocess.run(check, check=False, **run)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr


def test_an_installed_copy_tests_plugins(wheel: Path, tmp_path: Path) -> None:
    """In a server of its own, without pytest."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "mark.py").write_text(
        "async def sender_headers(delivery, headers):\n    headers.add('X-Mark', 'seen')\n"
    )
    (tmp_path / "trial.py").write_text(
        "import asyncio, sys\n"
        "sys.modules['pytest'] = None\n"
        "from zonemta_py.plugin.testing import running\n"
        "async def trial():\n"
        "    async with running('mark.py') as mta:\n"
        "        await mta.send('anna@example.com')\n"
        "        found = await mta.arrived('anna@example.com')\n"
        "        print(found.headers.get('X-Mark'), sys.modules['zonemta_py'].__file__)\n"
        "asyncio.run(trial())\n"
    )
    run = {"cwd": tmp_path, "env": {"PYTHONPATH": str(site)}, "capture_output": True, "text": True, "timeout": 60}
    told = subprocess.run([sys.executable, "trial.py"], check=False, **run)  # type: ignore[call-overload]
    assert told.stdout.split() == ["seen", str(site / "zonemta_py/__init__.py")], told.stderr


def test_the_image_is_made_of_named_files() -> None:
    """config/requirements.lock has each dependency in a version that pyproject.toml allows, with the hashes of its
    files and no place to get them from; `scripts/lock` writes it."""
    text = (TOP / "config" / "requirements.lock").read_text()
    pinned = {}
    for entry in text.replace("\\\n", " ").splitlines():
        name, version, *hashes = entry.replace("==", " ").split()
        assert hashes, f"{name} has no hash"
        assert all(one.startswith("--hash=sha256:") for one in hashes), entry[:200]
        pinned[canonicalize_name(name)] = version
    wanted = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["dependencies"]
    for one in map(Requirement, wanted):
        version = pinned.get(canonicalize_name(one.name))
        assert version is not None, f"{one.name} is missing: run scripts/lock"
        assert version in one.specifier, f"{one}: {version} is locked; run scripts/lock"


def test_where_plyvel_cannot_be_had_pip_says_so_in_one_sentence(tmp_path: Path) -> None:
    """Before it begins with the C++ of a Python for which there is no wheel; where it is there already, nothing is
    said."""
    script = tmp_path / "setup.py"
    script.write_text(
        (TOP / "setup.py").read_text().replace("PLYVEL_WHEELS_BEFORE = (3, 13)", "PLYVEL_WHEELS_BEFORE = (3, 0)")
    )
    (tmp_path / "zonemta_py").mkdir()
    (tmp_path / "plugins").mkdir()
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    run = partial(subprocess.run, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60)
    needs = {"PYTHONPATH": str(Path(setuptools.__file__).parents[1]), "CXX": "/nowhere", "PATH": "/nowhere"}
    found = run([sys.executable, script, "egg_info"], env=needs)
    assert found.returncode == 0, found.stderr
    missing = run([bare / "bin" / "python", script, "egg_info"], env=needs)
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1
    assert "install a C++ compiler and the headers first" in missing.stderr
    assert run([bare / "bin" / "python", script, "--version"], env=needs).returncode == 0
