"""`zonemta rules`: check, explain, list."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.config.section import shipped

OWN = """
[[rules]]
name = "mine"
class = "policy"
pattern = "my very own"
verdict = "bounce"
examples = ["450 my very own reply"]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A configuration that names rules of one's own."""
    (tmp_path / "own.toml").write_text(OWN)
    path = tmp_path / "zonemta.toml"
    path.write_text(f"[rules]\nextra = '{tmp_path / 'own.toml'}'")
    return path


def test_check_runs_the_shipped_examples(zonemta: Callable[..., object]) -> None:
    """And counts the rules of each class."""
    ran = zonemta("rules", "check")
    assert (ran.code, ran.err) == (Exit.OK, "")
    assert "all good" in ran.out
    assert "user-unknown" in ran.out


def test_check_of_files_prints_every_problem(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """One sentence each, and exit code 1."""
    path = tmp_path / "bad.toml"
    path.write_text(OWN + OWN.replace('"mine"', '"second"') + OWN.replace('"mine"', '"third"').replace("450", "hello"))
    ran = zonemta("rules", "check", path)
    assert ran.code == Exit.CONFIG
    assert f"zonemta: {path}: rule 'third': example 'hello my very own reply' is not a reply" in ran.err
    path.write_text(OWN + OWN.replace('"mine"', '"second"'))
    ran = zonemta("rules", "check", path)
    assert ran.code == Exit.PROBLEMS
    assert ran.out == f"{path}: rule 'second' never matches, 'mine' before it claims all its examples; " + (
        "move it up or remove one of them\n"
    )
    assert ran.err == "zonemta: 1 problem in 2 rules\n"


def test_own_rules_are_asked_first(zonemta: Callable[..., object], own: Path, tmp_path: Path) -> None:
    """explain names the file they stand in, and the shipped rule that would hold without them."""
    ran = zonemta("rules", "explain", "450 my very own reply", "--config", own)
    assert ran.code == Exit.OK
    lines = ran.out.splitlines()
    assert lines[0].split() == ["rule", "mine"]
    assert "policy" in lines[1]
    assert "verdict bounce" in lines[2]
    assert str(tmp_path / "own.toml") in lines[4]
    assert ["also", "code-450"] in [line.split()[:2] for line in lines]
    assert zonemta("rules", "check", "--config", own).code == Exit.OK


@pytest.mark.parametrize(
    ("reply", "about", "suppresses"),
    [
        ("550 5.1.1 <ann@example.com>: user unknown", "the recipient", "after one reply"),
        ("550 5.7.1 user unknown", "the recipient", "after 3 on different days within 30 days"),
        ("450 4.1.1 user unknown", "the recipient", "never"),
        ("550 5.1.1 sender: no such user", "the sender", "never"),
        ("552 5.2.2 mailbox full", "the recipient", "after 5 on different days within 30 days, over 10 or more"),
        ("554 5.7.1 your IP is blacklisted", "our address, host or connection", "never"),
    ],
)
def test_explain_says_of_whom_and_what_follows(
    zonemta: Callable[..., object], reply: str, about: str, suppresses: str
) -> None:
    """When such replies put the recipient on the suppression list, by the configuration in force."""
    first = json.loads(zonemta("rules", "explain", reply, "--json").out)[0]
    assert (first["about"], first["suppresses"]) == (about, suppresses)
    lines = zonemta("rules", "explain", reply).out.splitlines()
    assert suppresses in next(line for line in lines if line.startswith("suppresses"))


def test_explain_knows_stages_by_other_names(zonemta: Callable[..., object]) -> None:
    reply = "554 5.7.1 no such name"
    for name, stage in (("helo", "ehlo"), ("starttls", "tls")):
        named = zonemta("rules", "explain", reply, "--stage", name, "--json").out
        assert named == zonemta("rules", "explain", reply, "--stage", stage, "--json").out


def test_explain_names_rules_that_have_no_say(zonemta: Callable[..., object]) -> None:
    """Whose conditions hold, but which speak of somebody else."""
    ran = zonemta("rules", "explain", "550 5.1.1 sender: no such user")
    assert "user-no-such (user-unknown): it speaks of the sender" in ran.out


def test_rules_that_disagree_are_told(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """One takes the reply for a matter of the recipient, another for one of ours: `check` and `explain` warn."""
    rule = "[[rules]]\nname = '{0}'\nclass = '{1}'\npattern = '{2}'\nexamples = ['550 {3}']\n"
    path, config = tmp_path / "two.toml", tmp_path / "zonemta.toml"
    path.write_text(
        rule.format("a", "mailbox-full", "xyz abc", "xyz abc") + rule.format("b", "relay-denied", "xyz", "xyz")
    )
    config.write_text(f"[rules]\nfile = '{path}'")
    ran = zonemta("rules", "check", "--config", config)
    assert ran.code == Exit.OK
    assert "example '550 xyz abc' is mailbox-full, but 'b' would take it for relay-denied" in ran.out
    assert "warning" in zonemta("rules", "explain", "550 xyz abc", "--config", config).out


def test_explain_takes_stage_and_provider(zonemta: Callable[..., object]) -> None:
    """The same words mean different things at different places."""
    line = "550 5.5.0 Requested action not taken: mailbox unavailable"
    microsoft = zonemta("rules", "explain", line, "--stage", "dot", "--provider", "microsoft", "--json")
    assert json.loads(microsoft.out)[0]["rule"] == "microsoft-mailbox-unavailable"
    elsewhere = zonemta("rules", "explain", line, "--stage", "dot", "--json")
    assert json.loads(elsewhere.out)[0]["rule"] != "microsoft-mailbox-unavailable"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["explain", "hello"], Exit.DATA, "'hello' is not a reply"),
        (["explain", "550 x", "--stage", "rctp"], Exit.USAGE, "there is no stage 'rctp'"),
        (["list", "--class", "rates"], Exit.USAGE, "there is no class 'rates'"),
        (["check", "/nowhere.toml"], Exit.CONFIG, "/nowhere.toml: cannot be read"),
    ],
)
def test_mistakes(zonemta: Callable[..., object], arguments: list[str], code: int, words: str) -> None:
    """Are one sentence with an exit code."""
    ran = zonemta("rules", *arguments)
    assert ran.code == code
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_list_shows_one_class(zonemta: Callable[..., object]) -> None:
    """In the order they are asked, with what they ask for and do."""
    rows = json.loads(zonemta("rules", "list", "--class", "greylisting", "--json").out)
    assert {row["class"] for row in rows} == {"greylisting"}
    assert all(row["action"]["delay_s"] > 0 for row in rows)
    assert "greylist-named" in zonemta("rules", "list", "--class", "greylisting").out


def test_a_reply_that_no_rule_knows(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """With rules of one's own only, such a reply is undefined."""
    (tmp_path / "own.toml").write_text(OWN)
    config = tmp_path / "zonemta.toml"
    config.write_text(f"[rules]\nfile = '{tmp_path / 'own.toml'}'")
    assert "undefined" in zonemta("rules", "explain", "450 else", "--config", config).out


def test_shipped_files_are_found() -> None:
    """By the name an operator knows them by in a checkout."""
    assert shipped("rules.toml").parts[-2:] == ("config", "rules.toml")
    assert shipped("rules.toml").is_file()
