"""Plugins written to files, and hosts that load them as the configuration would."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.config import Plugins
from zonemta_py.plugin.configured import ANYTHING, Configured
from zonemta_py.plugin.host import Host

MakeHost = Callable[..., Host]


@pytest.fixture
def make_host(tmp_path: Path) -> MakeHost:
    """make_host(source, …) gives a host with plugins p1, p2 …; options are [plugins.options.p1] and so on."""
    made = 0

    def make(
        *sources: str, timeout_s: float = 5, zones: tuple[str, ...] = (), unknown_zone: str = "default",
        configured: Configured = ANYTHING, **options: dict[str, Any],
    ) -> Host:  # fmt: skip
        nonlocal made
        configured = configured._replace(zones=frozenset(zones)) if zones else configured
        made += 1
        folder = tmp_path / f"plugins{made}"
        folder.mkdir()
        names = [f"p{number}" for number in range(1, len(sources) + 1)]
        for name, source in zip(names, sources, strict=True):
            (folder / f"{name}.py").write_text(textwrap.dedent(source))
        given = {"enabled": names, "folder": folder, "timeout_s": timeout_s, "options": options}
        return Host.load(Plugins.model_validate(given | {"unknown_zone": unknown_zone}), configured)

    return make
