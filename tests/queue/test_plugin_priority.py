"""The priority that a plugin gives is the scheduler's, from the first lease on; the bundled example shows it."""

from __future__ import annotations

import textwrap
import tomllib
from typing import Any

from zonemta_py.config import Plugins
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.plugin.configured import Configured
from zonemta_py.plugin.host import Host
from zonemta_py.plugin.loading import BUNDLED
from zonemta_py.plugin.queue_hooks import PluginHooks

ZONES = [{"name": "default", "priority": 2}, {"name": "bulk"}]


def example() -> Host:
    """As the plugin's own page says it is configured."""
    page = (BUNDLED / "custom_routing.py").read_text().split('"""')[1]
    text = "\n".join(line for line in page.splitlines() if line.startswith("    "))
    return Host.load(
        Plugins.model_validate(tomllib.loads(textwrap.dedent(text))["plugins"]),
        Configured(frozenset(("default", "bulk"))),
    )


async def priorities(home: Any) -> dict[str, int]:
    return {delivery.recipients[0].address: delivery.priority for delivery in await home.leases()}


async def test_the_bundled_example(house: Any) -> None:
    """A newsletter goes through its zone with less than the usual share, also after a crash."""
    home = await house(hooks=PluginHooks(example()), zones=ZONES)
    envelope = Envelope("a@src.test", [Recipient("n@x.test")], 9, headers={"list-id": "Weekly <news.example.com>"})
    await home.put_envelope(envelope)
    await home.put("r@x.test")
    assert await priorities(home) == {"n@x.test": -1, "r@x.test": 2}
    await home.crash()
    assert await priorities(home) == {"n@x.test": -1, "r@x.test": 2}


async def test_a_plugin_among_others(house: Any, tmp_path: Any) -> None:
    """It finds the message's own priority, and may change it in both directions, within bounds."""
    file = tmp_path / "first.py"
    file.write_text(
        "async def queue_route(envelope, routing):\n"
        "    routing.priority = {'a@x.test': routing.priority + 1, 'b@x.test': 0, 'c@x.test': 9}"
        ".get(routing.recipient, routing.priority)\n"
    )
    home = await house(hooks=PluginHooks(Host.load(Plugins(enabled=[str(file)]))), zones=ZONES[:1])
    for name in "abcd":
        await home.put(f"{name}@x.test", priority=3)
    assert await priorities(home) == {"a@x.test": 4, "b@x.test": 0, "c@x.test": 9, "d@x.test": 3}
