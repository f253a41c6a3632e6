"""The order in which papers and `zonemta plugin order` show hooks is the one in which a message meets them."""

from __future__ import annotations

from pathlib import Path

from zonemta_py.plugin.spec import HOOKS
from zonemta_py.plugin.testing import running

MET = (
    "smtp_mail_from", "smtp_rcpt_to", "smtp_data", "message_headers", "message_queue", "queue_route", "message_stored",
    "sender_fetch", "sender_headers", "sender_connecting", "sender_connect", "sender_connected", "sender_connection",
    "sender_delivered",
)  # fmt: skip
"""By one message that goes at once. The others run beside these, or as something goes wrong."""


async def test_a_message_meets_them_in_their_order(tmp_path: Path) -> None:
    plugin, met = tmp_path / "order.py", tmp_path / "met"
    hooks = "".join(f"async def {name}(): _meet('{name}')\n" for name in MET)
    plugin.write_text(
        "import time\n\ndef _meet(name):\n"
        f"    with open('{met}', 'a') as file:\n        file.write(f'{{time.monotonic_ns()}} {{name}}\\n')\n\n{hooks}"
    )
    async with running(plugin) as mta:
        await mta.send("anna@example.com")
        await mta.arrived("anna@example.com")
        await mta.idle()
    found = sorted((int(line.split()[0]), line.split()[1]) for line in met.read_text().splitlines())
    assert [name for _, name in found] == list(MET)
    assert [name for name in HOOKS if name in MET] == list(MET)
