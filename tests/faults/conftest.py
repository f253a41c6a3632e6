"""The trials live in scripts/survival, where scripts/crash and scripts/faults run them at length; here, in short."""

import sys
from pathlib import Path

from tests.reception.conftest import certificate, users  # noqa: F401 (fixtures)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
