"""`scripts/fuzz`: one target after the other, each for some seconds, with atheris, which sees which lines are reached.

Inputs that reach something new are kept in --found, to go on from; one that breaks a rule is written there too, shown,
and ends that target. What is worth keeping goes into tests/fuzz/corpus/TARGET, small, and is run by the suite.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 60
_OURS = ["zonemta_py", "aiosmtpd", "email"]


def main() -> int:
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"any of {', '.join(TARGETS)}; none: all")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for each target (%(default)s)")
    parser.add_argument("--found", type=Path, default=Path("/tmp/zonemta-fuzz"), help="kept inputs (%(default)s)")
    said = parser.parse_args()
    if unknown := sorted(set(said.targets) - set(TARGETS)):
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    broken = []
    for name in said.targets or TARGETS:
        found = said.found / name
        found.mkdir(parents=True, exist_ok=True)
        limits = [f"-max_total_time={said.seconds}", "-max_len=20000", "-timeout=20"]
        places = [f"-artifact_prefix={found}/broken-", str(found), str(CORPUS / name)]
        if subprocess.run([sys.executable, "-c", _ONE, name, *limits, *places]).returncode:
            broken.append(name)
    print(f"rules are broken by {', '.join(broken)}; see {said.found}" if broken else "no rule is broken")
    return bool(broken)


_ONE = f"""
import sys, atheris
with atheris.instrument_imports(include={_OURS!r}):
    from tests.fuzz import targets
name = sys.argv.pop(1)
atheris.Setup(sys.argv, lambda data: targets.run(name, data))
atheris.Fuzz()
"""

if __name__ == "__main__":
    sys.exit(main())
