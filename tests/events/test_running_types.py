"""Types of events as a running MTA makes them, by its commands, in the file of a sink; each fits the schema."""

import asyncio
import json
import smtplib
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from survival.client import Client
from survival.clock import MachineClock
from survival.ledger import Ledger
from survival.rig import Mta, sink
from survival.shim import missing

from tests.events.test_feed import until
from tests.queue.test_campaigns import template
from zonemta_py.events.schema import json_schema

MORE = """in_doubt = "hold"
pool = "p"
[[pools]]
name = "p"
sources = [{{ address = "127.0.0.1", warmup = "w" }}]
[[warmups]]
name = "w"
caps = [100000, 200000]
[[event_sinks]]
name = "f"
kind = "file"
path = "{path}"
batch_s = 0.05
"""
WANTED = {
    "accepted", "queued", "attempted", "delivered", "deferred", "bounced", "finished", "in_doubt", "held", "released",
    "removed", "suppressed", "unsuppressed", "feedback", "suspended", "resumed", "warmup_changed", "campaign_begun",
    "campaign_completed", "campaign_canceled", "configuration_changed", "clock_set",
}  # fmt: skip
VALID = Draft202012Validator(json_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)


@pytest.mark.skipif(bool(missing()), reason="no compiler")
async def test_types_of_a_running_mta(memory: Path, tmp_path: Path) -> None:
    clock, path = MachineClock(tmp_path / "clock"), tmp_path / "events.jsonl"

    def came() -> dict[str, dict[str, object]]:
        """An event of each type."""
        written = path.read_text().rpartition("\n")[0] if path.exists() else ""  # the last line may be under way
        rows = map(json.loads, written.splitlines())
        return {row["type"].removeprefix("zonemta."): row for row in rows}

    async with sink(Ledger(), dot_latency_s=0.05) as destination:
        mta = Mta(
            memory, destination.port, home=tmp_path, more=MORE.format(path=path), processes=1,
            environment=clock.environment,
        )  # fmt: skip
        client = Client(mta.port, Ledger())

        async def zonemta(*arguments: str) -> None:
            command = [sys.executable, "-m", "zonemta_py", *arguments, "--config", str(mta.config_file)]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
            assert await process.wait() == 0, arguments

        mta.start()
        try:
            await mta.taking()
            await until(lambda: (memory / "events/f/cursor.json").exists(), mta.log_tail())
            mta.ask("stop", kind="zone", name="default", seconds=60, cause="they asked")
            mta.ask("lift", kind="zone", name="default")
            mta.ask("suppress", rows=[["eve@x.test", "complaint", "she called", "", "ann", "", 0, ""]])
            with smtplib.SMTP("127.0.0.1", mta.port) as session:
                session.sendmail("ann@src.test", ["eve@x.test"], "Subject: Hi\r\n\r\nHi\r\n")
            mta.ask("unsuppress", addresses=["eve@x.test"])
            mta.ask("warm", source="127.0.0.1", provider="google", step=2)
            for name in ("spring", "summer"):
                mta.ask("campaign-put", name=name, sender="news@src.test", template=template(), planned=5)
            mta.ask("campaign-complete", name="spring")
            mta.ask("campaign-cancel", name="summer", cause="no")
            begun = 0
            while not {"in_doubt", "held"} <= came().keys():
                assert begun < 3000, "nothing was in doubt"
                mail = asyncio.ensure_future(client.hand_in(range(begun, begun + 100)))
                begun += 100
                await asyncio.sleep(0.3)
                mta.kill("sender")
                await mail
                await asyncio.sleep(0.5)
            await zonemta("queue", "release", str(came()["held"]["subject"]))
            await until(lambda: "released" in came(), "nothing was released")
            clock.move(3600)
            await client.hand_in(range(begun, begun + 5))
            await until(lambda: "clock_set" in came(), "the clock was not seen to be set")
            mta.stop()
            mta.config_file.write_text(mta.config_file.read_text().replace("connections = 5", "connections = 6"))
            mta.start()
            await mta.taking()
            await until(lambda: "configuration_changed" in came(), mta.log_tail())
        finally:
            mta.end()
    for line in path.read_text().splitlines():
        VALID.validate(json.loads(line))
    assert not WANTED - came().keys()
