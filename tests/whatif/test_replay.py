"""The replay is the real queue in simulated time: the same input, the same result, and providers keep their ways."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.app import main
from zonemta_py.config import Config
from zonemta_py.journal.records.mail import BOUNCED, DEFERRED, DELIVERED
from zonemta_py.whatif.compare import facts
from zonemta_py.whatif.history import History, read
from zonemta_py.whatif.replay import Replayed, Span, replay

START_MS = 1_700_006_400_000
TAKEN = (DELIVERED, 250, "2.0.0", "ok", "dot", "")
PUT_OFF = (DEFERRED, 452, "4.2.2", "mailbox full", "rcpt", "mailbox-full")
SPAN = Span(START_MS, START_MS + 3_600_000, 24 * 3_600_000)
POOL = {"pools": [{"name": "p", "sources": [{"address": "192.0.2.10"}]}], "zones": [{"name": "default", "pool": "p"}]}


def run(day: Path, folder: Path, seed: int = 1, **options: Any) -> tuple[History, Replayed]:
    history = read([day])
    return history, replay(Config.model_validate(POOL | options), history, SPAN, seed, folder)


@pytest.fixture(scope="module")
def again(day: Path, shared_memory: Path) -> tuple[History, Replayed]:
    """The day, replayed with the configuration that it had."""
    return run(day, shared_memory / "again")


def test_recipients_come_to_the_same_end(again: tuple[History, Replayed]) -> None:
    """Whom a provider took or refused it takes or refuses again; nobody is lost, nobody is invented."""
    history, replayed = again
    assert replayed.refused == 0
    ends = {key: tried[-1].verdict for key, tried in replayed.history.attempts.items()}
    assert ends == {key: tried[-1].verdict for key, tried in history.attempts.items()}
    assert sorted(set(ends.values())) == [DELIVERED, BOUNCED]


def test_a_greylist_makes_a_stranger_wait_as_long(again: tuple[History, Replayed]) -> None:
    """A greylisting server takes the message no earlier after its first attempt than it did."""
    _, replayed = again
    grey = [tried for (_, address), tried in replayed.history.attempts.items() if address.startswith("g")]
    assert len(grey) == 20
    assert all(tried[0].kind == "greylisting" and tried[-1].ms - tried[0].ms >= 290_000 for tried in grey)


def test_what_is_out_of_reach_stays_so(again: tuple[History, Replayed]) -> None:
    """A site that did not answer for an hour does not answer the replay for that hour."""
    _, replayed = again
    (tried,) = [tried for (_, address), tried in replayed.history.attempts.items() if address == "a@down.test"]
    assert tried[-1].ms >= START_MS + 3_600_000
    assert tried[0].stage == "connect"


def test_a_slower_configuration_is_put_off_less(day: Path, memory: Path) -> None:
    """Under a limit that the provider bears there are hardly any deferrals by it, and it shows."""
    history, fast = run(day, memory / "fast", learning={"initial": 100})
    limit = {"name": "gently", "only": {"provider": "big"}, "messages": "50/min"}
    _, slow = run(day, memory / "slow", throttles=[limit])
    hasty, gentle = (facts(one.history, history, SPAN)["provider", "big"] for one in (fast, slow))
    assert hasty.delivered == gentle.delivered == 600
    assert gentle.deferrals["rate"] < hasty.deferrals["rate"]
    assert max(gentle.minutes.values()) <= 101  # a minute's worth at most, and the burst


def test_who_was_taken_out_is_not_replayed(archive: Callable[[], Any], tmp_path: Path) -> None:
    """A canceled or suppressed recipient was not the configuration's doing: it is neither delivered nor counted."""
    made = archive()
    gone = made.mail(0, "gone@x.test", [(50, *PUT_OFF)], site="mx.x.test", provider="")
    made.removed(100, gone, "gone@x.test")
    made.mail(0, "stays@x.test", [(50, *TAKEN)], site="mx.x.test", provider="")
    history, replayed = run(made.close(), tmp_path / "queue")
    assert [address for _, address in replayed.history.attempts] == ["stays@x.test"]
    for one in (history, replayed.history):
        whole = facts(one, history, SPAN)["all", ""]
        assert (whole.recipients, whole.delivered, whole.waiting) == (1, 1, 0)


def test_mail_comes_when_it_came_first(archive: Callable[[], Any], tmp_path: Path) -> None:
    """An envelope that a start wrote again, hours later, does not move its mail to that hour."""
    made = archive()
    message_id = made.mail(0, "a@x.test", [(50, *TAKEN)], site="mx.x.test", provider="")
    made.envelope_again(3_000_000, message_id)
    _, replayed = run(made.close(), tmp_path / "queue")
    assert replayed.history.attempts[message_id, "a@x.test"][-1].ms < START_MS + 60_000


def test_the_same_seed_gives_the_same_replay(day: Path, tmp_path: Path) -> None:
    """Not even the order in which Python goes through its sets may show."""
    config = tmp_path / "try.toml"
    config.write_text(
        '[[pools]]\nname = "p"\n[[pools.sources]]\naddress = "192.0.2.10"\n[[zones]]\nname="default"\npool="p"\n'
    )
    asked = ["whatif", str(config), "--archive", str(day), "--day", "2023-11-15", "--json"]
    said = [
        subprocess.run(
            [sys.executable, "-m", "zonemta_py", *asked],
            env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True, timeout=120,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1]
    assert json.loads(said[0])["rows"][0]["tried"]["delivered"] == 621


def test_the_command_shows_both_and_writes_a_table(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What really happened stands beside what would have, for people and as CSV."""
    config = tmp_path / "try.toml"
    zones = '[[zones]]\nname = "default"\n[[zones]]\nname = "sales"\nheaders = { X-Kind = "sale" }\n'
    config.write_text(f'{zones}[[throttles]]\nname = "gently"\nonly = {{ provider = "big" }}\nmessages = "50/min"\n')
    out = tmp_path / "figures.csv"
    given = ["whatif", str(config), "--archive", str(day), "--config", str(config), "--csv", str(out), "--hours", "1"]
    assert main(given) == 0
    said = capsys.readouterr()
    shown = said.out
    assert all(run in shown for run in ("recorded", "tried", "as it was"))
    assert "…" not in shown
    assert "most/min" in shown, "a pipe has every column, and the whole of it"
    assert "tried: zones[sales].headers: no mail of the archive has the field x-kind" in said.err
    assert "all,,recorded,622,621,1,0," in out.read_text()


def test_rules_that_cannot_be_read_are_one_sentence(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are found when the replay's queue begins, and said as they are."""
    config = tmp_path / "try.toml"
    config.write_text(f'[rules]\nextra = "{tmp_path / "nowhere.toml"}"\n')
    assert main(["whatif", str(config), "--archive", str(day), "--hours", "1"]) == 78
    said = capsys.readouterr().err
    assert "nowhere.toml" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--day", "2020-01-01"], "the archive has no mail in the 24 hours from 2020-01-01 00:00 UTC on"),
        (["--archive", "/nowhere"], "/nowhere is not a folder"),
    ],
)
def test_mistakes_are_one_sentence(
    day: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    """Each names what is wrong and what to give."""
    config = tmp_path / "try.toml"
    config.write_text("")
    assert main(["whatif", str(config), "--archive", str(day), *arguments]) != 0
    assert sentence in capsys.readouterr().err
