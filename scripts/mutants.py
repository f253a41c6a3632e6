"""Mutation testing: are the tests of a module upset by every change of it? A mutant that upsets none has survived.

tests/mutants.toml names the modules, each with the tests that judge it, and the survivors that are accepted, each with
its reason. What is counted, per module:

- mutants: what cosmic-ray's operators make of it, one spot changed in each. Those that are no Python are left out, and
  so are those that differ in annotations alone: no module here evaluates them.
- killed: a test fails, or takes more time than all of them do unchanged.
- equivalent: survivors that do nothing else than the original, as the file explains. They count for nothing.
- explained: other survivors that are accepted: they do cost something, and the file says why no test asks for it.

Ends with 0 if every module has 90 % killed of all that are not equivalent, and no survivor is without a reason, nor a
reason without its survivor.

How: one process has imported pytest, the libraries and what the module itself imports. Each mutant gets a fork of it,
where the import of the module yields the mutant, and where nothing that has seen the original is left.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import hypothesis
import pytest

TOP = Path(__file__).resolve().parents[1]
LIST = TOP / "tests" / "mutants.toml"
LEAST = 0.9
CPU_S = 2.0
"""And twice what the tests take unchanged: a mutant that takes more goes round in a circle."""
WAIT_S = 120.0
"""For one that waits for what never comes."""
MEMORY_BYTES = 4 << 30
SURVIVED = 0


class Mutant(NamedTuple):
    """before, after: the changed lines, without their indentation."""

    line: int
    before: str
    after: str
    code: str

    def __str__(self) -> str:
        return f"{self.line}: {self.before}\n      → {self.after}"


def main() -> int:
    said = arguments()
    table = tomllib.loads(LIST.read_text("utf-8"))
    names = [name for name in table if not said.modules or any(word in name for word in said.modules)]
    # A process of its own for each, since what is imported stays imported.
    ends = [os.waitstatus_to_exitcode(os.waitpid(_fork(measure, name, table[name], said), 0)[1]) for name in names]
    return max(ends, default=2)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", metavar="WORD", help="only modules with this in their path; none: all")
    parser.add_argument("--line", metavar="TEXT", default="", help="only mutants of lines with this in them")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time (%(default)s)")
    return parser.parse_args()


def measure(path: str, entry: dict[str, Any], said: argparse.Namespace) -> int:
    """One module: prints its line, and what is wrong with it."""
    name = ".".join(Path(path).with_suffix("").parts)
    mutants = [one for one in made((TOP / path).read_text("utf-8")) if said.line in one.before]
    prepare(name, entry["tests"])
    with tempfile.TemporaryDirectory() as folder:

        def begin(number: int, code: str) -> int:
            return _fork(judge, name, path, code, entry["tests"], f"{folder}/{number}", cpu_s)

        cpu_s = 600
        if _outcomes([(TOP / path).read_text("utf-8")], begin, 1)[0] != SURVIVED:
            print(f"{path}: its tests fail as it is: pytest {' '.join(entry['tests'])}")
            return 2
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = math.ceil(CPU_S + 2 * (used.ru_utime + used.ru_stime))
        ends = _outcomes([mutant.code for mutant in mutants], begin, said.jobs)
    late = sum(end in (signal.SIGXCPU, signal.SIGKILL) for end in ends)
    survivors = [mutant for mutant, end in zip(mutants, ends, strict=True) if end == SURVIVED]
    return report(path, entry, len(mutants), late, survivors, whole=not said.line)


def _outcomes(codes: list[str], begin: Callable[[int, str], int], jobs: int) -> list[int]:
    """How each process ends: its status, as wait(2) gives it."""
    ends = [0] * len(codes)
    waiting, running = deque(enumerate(codes)), dict[int, tuple[int, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            number, code = waiting.popleft()
            running[begin(number, code)] = number, time.monotonic() + WAIT_S
        for pid, (number, until) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ends[number] = status
            elif time.monotonic() > until:
                os.killpg(pid, signal.SIGKILL)
                ends[number] = os.waitpid(pid, 0)[1]
            else:
                continue
            del running[pid]
        time.sleep(0.01)
    return ends


def report(path: str, entry: dict[str, Any], total: int, late: int, survivors: list[Mutant], whole: bool) -> int:
    reasons = {kind: _reasons(entry.get(kind, [])) for kind in ("equivalent", "explained")}
    found = {(one.before, one.after) for one in survivors}
    equivalent, explained = (sum((one.before, one.after) in known for one in survivors) for known in reasons.values())
    unknown = [one for one in survivors if not any((one.before, one.after) in known for known in reasons.values())]
    idle = [pair for known in reasons.values() for pair in known if pair not in found] if whole else []
    share = (total - len(survivors)) / max(1, total - equivalent)
    print(
        f"{path}: {total} mutants, {total - len(survivors)} killed ({late} by time), {equivalent} equivalent,"
        f" {explained} explained, {len(unknown)} not: {100 * share:.1f} % killed of those that are not equivalent"
    )
    for one in unknown:
        print(f"  survives  {one}")
    for before, after in idle:
        print(f"  in {LIST.name}, but killed or not made  {before}\n      → {after}")
    sys.stdout.flush()
    return int(bool(unknown or idle) or share < LEAST)


def _reasons(entries: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["line"], mutant) for one in entries for mutant in one["mutants"] if one["why"]}


# -- mutants


def made(source: str) -> list[Mutant]:
    """In the order of the lines."""
    sys.path.append(os.environ["MUTANTS_LIB"])
    warnings.simplefilter("ignore", SyntaxWarning)  # of "is" with a number
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    original, nodes = _meaning(source), list(ast_nodes(get_ast(source)))
    provider, found = OperatorProvider(), list[Mutant]()
    for operator in (provider[name]() for name in provider if not provider[name].arguments()):
        for number in range(sum(1 for node in nodes for _ in operator.mutation_positions(node))):
            with contextlib.suppress(AttributeError):  # it cannot replace "except module.Error"
                code = mutate_code(source, operator, number)
                if code is not None and _meaning(code) not in (original, None):
                    found.append(_mutant(source, code))
    return sorted(found)


def _meaning(code: str) -> str | None:
    """Its tree without annotations; None: no Python."""
    try:
        compile(code, "", "exec", dont_inherit=True)
        tree = ast.parse(code)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def _mutant(source: str, code: str) -> Mutant:
    before, after = source.splitlines(), code.splitlines()
    first = next(n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
    same = 0
    while same < min(len(before), len(after)) - first - 1 and before[-1 - same] == after[-1 - same]:
        same += 1
    old, new = (" ".join(s.strip() for s in lines[first : len(lines) - same]) for lines in (before, after))
    return Mutant(first + 1, old, new, code)


# -- one process for each mutant


def prepare(name: str, tests: list[str]) -> None:
    """Imports all that the tests need, and forgets of ours what may have seen the module."""
    sys.path.insert(0, str(TOP))
    os.chdir(TOP)
    importlib.import_module(name)
    below = set(sys.modules) - {name}
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        pytest.main([*FLAGS, "--collect-only", *tests])
    for other in [other for other, module in sys.modules.items() if other not in below and _ours(module)]:
        del sys.modules[other]
        package, _, last = other.rpartition(".")
        if last in vars(sys.modules.get(package, sys)):
            delattr(sys.modules[package], last)


def _ours(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")
    return str(file).startswith((f"{TOP}/zonemta_py", f"{TOP}/plugins", f"{TOP}/tests", f"{TOP}/scripts"))


FLAGS = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "--tb=no"]


def judge(name: str, path: str, code: str, tests: list[str], folder: str, cpu_s: int) -> int:
    """In a fork: 0 if the tests are content with the mutant."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    finder = _Mutated(name, str(TOP / path), code)
    sys.meta_path.insert(0, finder)
    end = pytest.main([*FLAGS, f"--basetemp={folder}", *tests], plugins=[_Brief()])
    shutil.rmtree(folder, ignore_errors=True)
    return int(end) if finder.taken else 1


class _Mutated(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Finds and loads the one module."""

    def __init__(self, name: str, path: str, code: str) -> None:
        super().__init__(name, path)
        self._code, self.taken = code, False

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        self.taken = True
        return compile(self._code, self.path, "exec", dont_inherit=True)


class _Brief:
    """Hypothesis need not look for the shortest example: one is enough."""

    def pytest_sessionstart(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", hypothesis.settings.get_profile("steady"), phases=phases)
        hypothesis.settings.load_profile("mutants")


def _fork(do: Callable[..., int], *given: Any) -> int:
    """The process that does it. It ends with what `do` returns; with what it starts it is one group."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    end = 3
    try:
        end = do(*given)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(end)


if __name__ == "__main__":
    sys.exit(main())
