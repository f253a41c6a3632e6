"""The papers are run: commands as one would paste them, configurations and plugins as they stand; names must exist."""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ports import free_port

from zonemta_py.cli.app import tree
from zonemta_py.config import Config, Plugins
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import HOOKS

TOP = Path(__file__).parent.parent
PAPERS = {
    str(path.relative_to(TOP)): path.read_text()
    for path in [*TOP.glob("*.md"), *TOP.glob("docs/*.md"), *TOP.glob("plugins/*.md")]
}
"""Path → text. Those in `zonemta_py/` have tests of their own, but for the names in them."""
NAMES = {**PAPERS, **{str(path.relative_to(TOP)): path.read_text() for path in TOP.glob("zonemta_py/**/*.md")}}
BLOCKS = [
    (paper, *block)
    for paper, text in PAPERS.items()
    for block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]


def blocks(language: str, paper: str = "") -> list[str]:
    found = [text for where, name, text in BLOCKS if name == language and paper in ("", where)]
    assert found
    return found


def quoted(pattern: str) -> list[tuple[str, ...]]:
    """What stands in backticks and matches as a whole, with the paper that says so."""
    found = {
        (paper, text)
        for paper, page in NAMES.items()
        for text in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL))
        if re.fullmatch(pattern, text)
    }
    return sorted(found)


def test_how_many_rules_there_are() -> None:
    """Each paper that says so says the number of those that are shipped."""
    said = {paper: re.findall(r"\b(\d+) rules\b", text) for paper, text in PAPERS.items() if paper != "CHANGELOG.md"}
    there = str(len(tomllib.loads((TOP / "config" / "rules.toml").read_text())["rules"]))
    assert {paper: number for paper, numbers in said.items() for number in numbers if number != there} == {}
    assert said["README.md"] == [there]


@pytest.mark.parametrize("text", blocks("toml"))
def test_configurations_load_and_their_plugins_too(text: str) -> None:
    """Every fragment is a configuration that can be used as it is."""
    sections = tomllib.loads(text)
    config = Config.model_validate(sections)
    assert config.model_fields_set >= set(sections)
    host = Host.of(config)
    assert {row["plugin"] for row in host.statistics()} == {Path(name).stem for name in config.plugins.enabled}


@pytest.mark.parametrize(("paper", "name"), quoted(r"(?:\.ci|config|docs|zonemta_py|plugins|scripts|tests)/[\w./-]+"))
def test_files_that_are_named_exist(paper: str, name: str) -> None:
    """A path in the text leads somewhere."""
    assert (TOP / name).exists()


@pytest.mark.parametrize(("paper", "name"), quoted(r"[a-z_0-9]+(?:/[a-z_0-9]+)+(?:\.py|/)(?::[\w.]+)?"))
def test_code_that_is_named_exists(paper: str, name: str) -> None:
    """`folder/file.py`, below `zonemta_py/` or the top, exists, and `folder/file.py:Class.method` is defined in it."""
    path, _, what = name.partition(":")
    files = [top / path for top in (TOP, TOP / "zonemta_py", (TOP / paper).parent) if (top / path).exists()]
    assert files or path.split("/")[0] in KEPT, f"no such file: {path}"
    tree: ast.AST | None = ast.parse(files[0].read_text()) if what else None
    for part in what.split(".") if what else ():
        tree = defined(tree, part)
        assert tree is not None, f"{path} does not define {what}"


KEPT = {"archive", "bodies", "journal", "quarantine", "queue", "queues", "receipts", "store"}
"""Folders of a queue, which are no code."""


def defined(tree: ast.AST | None, name: str) -> ast.AST | None:
    """The class, function or variable of that name in this body."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


@pytest.mark.parametrize(("paper", "name"), quoted(r"zonemta_py(?:\.\w+)+"))
def test_modules_that_are_named_exist(paper: str, name: str) -> None:
    """A dotted name is a package, a module, or something that its module has."""
    path = TOP / name.replace(".", "/")
    whole = path.is_dir() or path.with_suffix(".py").exists()
    parent = path.parent.with_suffix(".py") if not path.parent.is_dir() else path.parent / "__init__.py"
    assert whole or defined(ast.parse(parent.read_text()), path.name)


@pytest.mark.parametrize(
    ("paper", "link"), [(paper, link) for paper, text in NAMES.items() for link in re.findall(r"\]\(([^)]+)\)", text)]
)
def test_links_lead_somewhere(paper: str, link: str) -> None:
    """To a file that is there, and to a heading that it has."""
    if "://" in link:
        return
    path, _, heading = link.partition("#")
    target = (TOP / paper).parent / path if path else TOP / paper
    assert target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if heading else []
    assert not heading or heading in {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def said(text: str) -> list[str]:
    """The commands of ours in a shell's text, each on its line, with what is substituted taken apart."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return re.findall(
        r"(?:^|[|;(=]|&&|\bthen)\s*(?:sudo (?:-u \w+ )?)?(?:[\w/.]*/)?(zonemta [^|;&>\n]*)", joined, re.MULTILINE
    )


COMMAND = tree()
COMMANDS = sorted(
    {(paper, line) for paper, name, text in BLOCKS if name == "sh" for line in said(text)}
    | {(paper, line) for paper, line in quoted(r"zonemta [a-z].*")}
)


@pytest.mark.parametrize(("paper", "line"), COMMANDS)
def test_commands_and_their_options_exist(paper: str, line: str) -> None:
    """Every `zonemta …` that the papers show, in blocks and in sentences, is a command, with options that it has."""
    words = shlex.split(line.replace("…", ""), comments=True)[1:]
    command = COMMAND
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        choices = words.pop(0).split("|")
        assert set(choices) <= set(command.commands), f"{line}: no command {choices}"
        command = command.commands[choices[0]]
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    if command.name == "run":  # has a parser of its own
        options |= set(re.findall(r'"(--\w+)"', (TOP / "zonemta_py/cli/run/commands.py").read_text()))
    assert {word.partition("=")[0] for word in words if re.match(r"--\w", word)} <= options


@pytest.mark.parametrize("line", sorted({line for paper, line in COMMANDS if paper == "docs/HABITS.md"}))
def test_what_others_call_differently_is_called_so(line: str) -> None:
    """Each command for a habit can be given as it stands, with placeholders as names: nothing in it is missing."""
    words = shlex.split(line)[1:]
    command = COMMAND
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        command = command.commands[words.pop(0)]
    if command.name != "run":  # has a parser of its own
        command.make_context(command.name, list(words))


TESTS = [text for text in blocks("python") if "def test_" in text]
PLUGINS = [text for text in blocks("python") if text not in TESTS]


@pytest.mark.parametrize("text", PLUGINS)
def test_plugins_load(text: str, tmp_path: Path) -> None:
    """Each example is a plugin: its hooks' names and arguments are checked by the host."""
    (tmp_path / "example.py").write_text(text)
    host = Host.load(Plugins(enabled=[str(tmp_path / "example.py")]))
    assert all(host.listens(name) for name in re.findall(r"^async def ([a-z]\w*)", text, re.MULTILINE))


def test_the_tutorial_passes_its_own_test(tmp_path: Path) -> None:
    """The plugin and the test of docs/PLUGINS.md, saved under the names that the page gives them."""
    plugin, (test,) = PLUGINS[0], TESTS
    (tmp_path / "staging.py").write_text(plugin)
    (tmp_path / "test_staging.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TOP)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_table_of_hooks_is_the_declared_one() -> None:
    """docs/PLUGINS.md names every hook, in its order, with its process, its verdicts and what its failure means."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| .* \| ([^|]*) \|$", PAPERS["docs/PLUGINS.md"], re.MULTILINE)
    for (name, process, says), hook in zip(rows, HOOKS.values(), strict=True):
        verdicts = set(re.findall(r"[A-Z]\w+", says))
        assert (name, process, verdicts) == (hook.name, hook.process, {one.__name__ for one in hook.verdicts})
        assert ("*passes*" in says) == (hook.failing == "pass"), name


def test_the_two_commands_are_there() -> None:
    """They are the first two blocks, can be executed, and are what continuous integration runs."""
    assert [text.strip() for text in blocks("sh", "README.md")[:2]] == ["scripts/quickstart", "scripts/test"]
    assert all(os.access(TOP / path, os.X_OK) for path in ("scripts/quickstart", "scripts/test", ".ci/run"))
    assert "scripts/test" in (TOP / ".ci" / "run").read_text()


def free_ports(count: int) -> list[int]:
    ports = set[int]()
    while len(ports) < count:
        ports.add(free_port())
    return [*ports]


def test_quickstart_delivers(tmp_path: Path) -> None:
    """The real thing, on free ports: all accepted, all delivered or deferred, and what to do next."""
    command = [TOP / "scripts/quickstart", "--port", "0", "--folder", tmp_path / "queue"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = re.search(r"1,000 accepted, ([\d,]+) delivered, ([\d,]+) deferred in [\d.]+ seconds", ran.stdout)
    assert found
    delivered, deferred = (int(number.replace(",", "")) for number in found.groups())
    assert delivered + deferred == 1000
    assert delivered >= 900
    assert all(f"example.{end}" in ran.stdout for end in ("com", "net", "org"))
    assert "What next?" in ran.stdout


def test_by_hand(tmp_path: Path) -> None:
    """The README's commands and those of "Why is it not sent?", pasted into a shell, with free ports and a folder."""
    mta, sink = free_ports(2)
    config = tmp_path / "c.toml"
    config.write_text(f"[server]\nfolder = '{tmp_path}/queue'\n[[listeners]]\nport = {mta}")
    (why,) = (text for text in blocks("sh") if "zonemta explain" in text)
    (hand,) = (text for text in blocks("sh", "README.md") if "zonemta sink" in text)
    script = paced(hand.replace("2526", str(sink)) + why, (sink, mta))
    environment = {
        **os.environ,
        "ZONEMTA_CONFIG": str(config),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ran = subprocess.run(
        ["bash", "-euc", script], cwd=TOP, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Recipients by zone" in ran.stdout
    assert "envelope" in ran.stdout
    assert "you@example.com" in ran.stdout
    assert "zone default is resumed" in ran.stdout


def test_operating(tmp_path: Path) -> None:
    """Backup, fsck and adopt of docs/OPERATING.md: a running queue is copied, the copy is sound and takes over."""
    mta, heir, nobody = free_ports(3)
    backup, check, adopt = (
        next(text for text in blocks("sh", "docs/OPERATING.md") if said in text).replace("/var/backups", str(tmp_path))
        for said in ("zonemta-monday", "zonemta fsck", "zonemta queue adopt")
    )
    relay, awake = (
        f"--relay 127.0.0.1:{nobody}",
        "until (exec 3<>/dev/tcp/127.0.0.1/{}) 2>/dev/null; do sleep 0.05; done",
    )
    script = f"""
zonemta run --folder {tmp_path}/queue --listen 127.0.0.1:{mta} {relay} & original=$!
{awake.format(mta)}
printf 'Subject: hello\\n\\nHello!\\n' | zonemta send --port {mta} you@example.com
export ZONEMTA_CONFIG={tmp_path}/c.toml
{backup}
kill -9 $original
{check}
zonemta run --folder {tmp_path}/zonemta-monday --listen 127.0.0.1:{heir} {relay} &
{awake.format(heir)}
until [ -S {tmp_path}/zonemta-monday/socket ]; do sleep 0.05; done
{adopt}
zonemta queue list --folder {tmp_path}/zonemta-monday
"""
    (tmp_path / "c.toml").write_text(f"[server]\nfolder = '{tmp_path}/queue'\n")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-euc", paced(script, ())], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lives here now" in ran.stdout
    assert "you@example.com" in ran.stdout


def test_http(tmp_path: Path) -> None:
    """The commands of "HTTP", and of "From any program" behind them, on free ports and in a folder of their own, pasted
    whole: all mail is taken."""
    mta, door, nobody = free_ports(3)
    found = [text for text in blocks("sh") if "/v1/inject" in text]
    block = "\n".join(sorted(found, key=lambda text: "zonemta run" not in text))
    block = block.replace("enabled = true", f"enabled = true\\nport = {door}").replace(
        "127.0.0.1:8525", f"127.0.0.1:{door}"
    )
    block = block.replace("zonemta run", f"zonemta run --listen 127.0.0.1:{mta} --relay 127.0.0.1:{nobody}")
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ran = subprocess.run(
        ["bash", "-euc", paced(block, ())], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count('"accepted": 1, "suppressed": 0, "repeated": false') == 3
    assert '"accepted": 2, "suppressed": 0, "repeated": false' in ran.stdout


def paced(script: str, ports: tuple[int, ...]) -> str:
    """A person waits until a server that went to the background is there, and ends it at last."""
    awake = "until (exec 3<>/dev/tcp/127.0.0.1/{}) 2>/dev/null; do kill -0 $!; sleep 0.05; done"
    lines = []
    waits = iter(awake.format(port) for port in ports)
    for line in script.splitlines():
        lines.append(line)
        if re.search(r"&\s*#", line):
            lines += [wait for wait in [next(waits, "")] if wait]
    return "trap 'kill $(jobs -p)' EXIT\n" + "\n".join(lines) + "\n"
