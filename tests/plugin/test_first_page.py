"""The example on the plugin author's first page works as printed."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

import zonemta_py.plugin
from zonemta_py.config import Plugins
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.spec import Address, Session
from zonemta_py.plugin.verdicts import Reject


async def test_the_example_runs(tmp_path: Path) -> None:
    """It loads by path, takes its options, refuses the blocked mailbox and counts it."""
    page = zonemta_py.plugin.__doc__ or ""
    example = textwrap.dedent("\n".join(re.findall(r"^(?: {4}.*)?$", page, re.M)))
    (tmp_path / "block.py").write_text(example)
    plugins = Plugins(enabled=[str(tmp_path / "block.py")], options={"block": {"blocked": ["a@example.com"]}})
    host = Host.load(plugins)
    await host.call("smtp_rcpt_to", address=Address("b@example.com"), session=Session())
    with pytest.raises(Reject) as caught:
        await host.call("smtp_rcpt_to", address=Address("a@example.com"), session=Session())
    assert str(caught.value.reply) == "550 5.7.1 This mailbox is not served here"
    assert {"plugin": "block", "counter": "refused", "value": 1} in host.statistics()


def test_everything_promised_is_exported() -> None:
    """A plugin needs no other import: __all__ is complete, and the page is no longer than a page."""
    assert all(hasattr(zonemta_py.plugin, name) for name in zonemta_py.plugin.__all__)
    assert {"Reject", "Defer", "Drop", "PluginApi", "log", "Session", "Routing"} <= set(zonemta_py.plugin.__all__)
    assert len((zonemta_py.plugin.__doc__ or "").splitlines()) <= 25
