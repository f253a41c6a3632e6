"""`zonemta verp` and `zonemta srs`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zonemta_py.cli.config import address
from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.disk.frame import Record
from zonemta_py.disk.packing import pack
from zonemta_py.journal.records import Type
from zonemta_py.journal.segments import Writer
from zonemta_py.mail.addresses import leaving, srs, verp
from zonemta_py.mail.addresses.link import Link, url

SECRET = "0123456789abcdef"
NOON_S = 1_795_003_200.0
TODAY = int(NOON_S) // 86_400


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is always the same day: what is made today is of today."""
    monkeypatch.setattr(address, "time", SimpleNamespace(time=lambda: NOON_S))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "zonemta.toml"
    path.write_text(f'[return_path]\nsecret = "{SECRET}"\n')
    return path


def test_verp(zonemta: Callable[..., Any], file: Path) -> None:
    """Message and recipient, for people and for programs."""
    path = verp.encode("0199aabbccddeeff", "ann@d.example", "b.example", SECRET, TODAY)
    ran = zonemta("verp", "decode", f"<{path}>", "--config", file)
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert ran.out.startswith("message 0199aabbccddeeff to ann@d.example, made ")
    row = json.loads(zonemta("verp", "decode", path, "--config", file, "--json").out)
    assert (row["id"], row["recipient"]) == ("0199aabbccddeeff", "ann@d.example")


def test_verp_of_a_long_recipient(zonemta: Callable[..., Any], file: Path, tmp_path: Path) -> None:
    """It stands in the return path as a mark only: the message's envelope in the journal says who it is."""
    recipient, message_id = f"{'a' * 40}@d.example", "0199aabbccddeeff"
    path = verp.encode(message_id, recipient, "b.example", SECRET, TODAY)
    command = ("verp", "decode", path, "--config", file, "--folder", tmp_path)
    assert "an unknown recipient" in zonemta(*command).out
    rows = [["z", "other@d.example", 0, None], ["z", recipient, 0, None]]
    Writer(tmp_path / "journal").write([Record(1, 1, Type.ENVELOPE, pack([message_id, {}, rows]))], sync=True)
    assert f" to {recipient}, " in zonemta(*command).out


def test_srs(zonemta: Callable[..., Any], file: Path) -> None:
    """The address behind it, and nothing else."""
    path = srs.rewrite("ann@there.example", "ours.example", SECRET, TODAY)
    assert zonemta("srs", "decode", path, "--config", file) == (Exit.OK, "ann@there.example\n", "")


@pytest.mark.parametrize("command", ["verp", "srs"])
def test_of_another_domain(command: str, zonemta: Callable[..., Any], file: Path) -> None:
    """A genuine local part at a domain that the configuration does not name as ours: nobody sent that."""
    with file.open("a") as more:
        more.write(f'{command} = "Ours.example"\n')
    for domain, code in (("ours.example", Exit.OK), ("theirs.example", Exit.DATA)):
        made = {
            "verp": verp.encode("0199aabbccddeeff", "ann@d.example", domain, SECRET, TODAY),
            "srs": srs.rewrite("ann@there.example", domain, SECRET, TODAY),
        }
        ran = zonemta(command, "decode", made[command], "--config", file)
        assert ran.code == code
        assert (f"theirs.example is not ours; return_path.{command} is" in ran.err) == (code != Exit.OK)


@pytest.mark.parametrize("command", ["verp", "srs"])
def test_refused(command: str, zonemta: Callable[..., Any], file: Path) -> None:
    """One sentence; and without a secret nothing can be said at all."""
    ran = zonemta(command, "decode", "ann@d.example", "--config", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (Exit.DATA, "", 1)
    assert zonemta(command, "decode", "ann@d.example").code == Exit.CONFIG


def test_address(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """What comes of mail there; what is refused is said in one sentence, with the reply's code."""
    file = tmp_path / "zonemta.toml"
    file.write_text(
        f'[[listeners]]\nname = "mx"\nfeedback = true\n[return_path]\nsecret = "{SECRET}"\nverp = "b.example"\n'
        'srs = "s.example"\nunsubscribe_domain = "u.example"\ncomplaints = ["fbl@c.example"]\n'
    )

    def said(address: str, *more: str) -> Any:
        return zonemta("address", address, "--config", file, "--folder", tmp_path, *more)

    path = verp.encode("0199aabbccddeeff", "ann@d.example", "b.example", SECRET, TODAY)
    assert "a report here is about message 0199aabbccddeeff to ann@d.example" in said(f"<{path}>").out
    assert (
        "forwarded to ann@there.example; taken at mx"
        in said(srs.rewrite("ann@there.example", "s.example", SECRET, TODAY)).out
    )
    left = leaving.encode("0199aabbccddeeff", "ann@d.example", "campaigns", "u.example", SECRET, TODAY - 3)
    row = json.loads(said(left, "--json").out)
    expected = {"purpose": "unsubscribe", "scope": "campaigns", "recipient": "ann@d.example", "days": 3}
    assert expected.items() <= row.items()
    assert "(complaint)" in said("fbl@c.example").out
    assert "refused with 550 5.1.1: its tag is not ours" in said(path.replace("ann=", "eve=")).err
    assert (said("x@y.example").code, said("x@b.example").code) == (Exit.DATA, Exit.DATA)


def test_a_link_says_what_it_is_for(zonemta: Any, tmp_path: Path) -> None:
    """Or why it would be refused."""
    file = tmp_path / "z.toml"
    file.write_text(f'[links]\nenabled = true\nurl = "https://m.example"\nsecrets = ["{SECRET}"]\n')
    link = Link("unsubscribe", "0199aabbccddeeff", "ann@d.example", "spring", "acme", "campaigns", TODAY - 3)
    done = zonemta("address", url("https://m.example", link, [SECRET]) + "?x=y", "--config", file)
    assert "unsubscribes (campaigns:acme): message 0199aabbccddeeff to ann@d.example, made 3 days ago" in done.out
    left = link._replace(scope="list", list_name="weekly.example")
    done = zonemta("address", url("https://m.example", left, [SECRET]), "--config", file)
    assert "unsubscribes (list:acme/weekly.example): message" in done.out
    for wrong, sentence in (
        (link._replace(day=TODAY - 400), "refused with 410: it is 400 days old"), (link, "refused with 403: its sig"),
    ):  # fmt: skip
        signed = [SECRET] if wrong is not link else ["another secret, which it is"]
        done = zonemta(
            "address",
            url("https://m.example", wrong, signed),
            "--config",
            file,
        )
        assert (done.code, sentence in done.err) == (Exit.DATA, True)
