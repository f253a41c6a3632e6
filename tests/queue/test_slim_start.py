"""A start imports no more than it needs to accept mail: each millisecond of importing is one that clients wait."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIBRARIES = {
    "annotated_types", "google_crc32c", "idna", "msgpack", "orjson", "plyvel", "pydantic", "pydantic_core",
    "typing_extensions", "typing_inspection", "uvloop", "zstandard",
}  # fmt: skip
NOT_OURS_YET = (
    "cli.app", "delivery", "mail.address", "mail.dkim", "mail.mime", "mail.rules.rule", "mail.rules.rules",
    "mail.rules.waiting_time", "merge", "pipeline", "reception", "sink", "whatif",
)  # fmt: skip
"""What only replies, templates, DNS, receivers and commands need."""
ACCEPTS = """
import asyncio, sys
from pathlib import Path
from zonemta_py.processes import checks, queue_process, supervisor
from zonemta_py.cli.run import commands

async def accepts(config, host):
    from zonemta_py.mail.envelope import Envelope, Recipient
    from zonemta_py.plugin.queue_hooks import PluginHooks
    from zonemta_py.queue.recovery.start import begin
    from zonemta_py.wire import server

    opening = await begin(config, PluginHooks(host), resolver=queue_process.resolver_of(config))
    listening = await server.serve(opening.queue, config.folder)
    envelope = Envelope(sender="ann@a.test", recipients=[Recipient("bob@b.test")])
    await opening.queue.accept(envelope, b"Subject: early\\r\\n\\r\\nHello\\r\\n")
    print(*sorted(sys.modules))
    listening.close()

config, *_ = commands.configured(["--folder", sys.argv[1]])
host = queue_process.plugins(config)
checks.check(config, host)
asyncio.run(accepts(config, host))
"""


def test_a_queue_accepts_mail_before_it_imports_what_only_delivery_and_commands_need(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ACCEPTS, str(tmp_path / "queue")], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    early = [f"zonemta_py.{name}" for name in NOT_OURS_YET]
    assert not [name for name in loaded if any(f"{name}.".startswith(f"{one}.") for one in early)]
    theirs = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names
    assert theirs - LIBRARIES <= {"__main__", "__mp_main__", "_distutils_hack", "cython_runtime", "zonemta_py"} | {
        name for name in theirs if name.startswith(("_cython_", "_sysconfigdata", "__editable__"))
    }
