"""`zonemta suppression …` and `zonemta forget` against a real queue."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.addresses.entries import hash_of
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

Told = Callable[..., Any]


async def two_wait(queue: LocalQueue) -> None:
    for address in ("ann@x.test", "bob@x.test"):
        await queue.accept(Envelope("src@x.test", [Recipient(address)], 10), b"Subject: x\r\n\r\n")


def test_add_show_list_remove(served: Told, told: Told) -> None:
    """An entry with all that was said about it, found in any spelling, and taken off again."""
    served()
    ran = told("suppression", "add", "Ann@X.test", "bob@x.test", "--kind", "unsubscribe", "--reason", "asked by phone")
    assert (ran.code, ran.out) == (Exit.OK, "2 added to the suppression list, 0 already known\n")
    ran = told("suppression", "show", "ANN@x.test")
    assert "asked by phone" in ran.out
    row = json.loads(told("suppression", "show", "ann@x.test", "--json").out)
    assert (row["address"], row["kind"]) == ("ann@x.test", "unsubscribe")
    assert row["by"]
    out = told("suppression", "list", "--limit", "1").out
    assert "ann@x.test" in out
    assert "bob@x.test" not in out
    assert "More: --after 'ann@x.test campaigns'" in out
    page = json.loads(told("suppression", "list", "--after", "ann@x.test campaigns", "--json").out)
    assert [row["address"] for row in page["rows"]] == ["bob@x.test"]
    assert told("suppression", "remove", "ann@x.test", "bob@x.test").out == "2 removed from the suppression list\n"
    assert json.loads(told("suppression", "list", "--json").out) == {"rows": [], "next": None}


def test_scopes(served: Told, told: Told, tmp_path: Path) -> None:
    """Who unsubscribes leaves campaigns; each scope is shown, listed, exported, imported and taken off by itself."""
    served()
    told("suppression", "add", "ann@x.test", "--kind", "unsubscribe")
    told("suppression", "add", "ann@x.test", "--scope", "zone:default")
    row = json.loads(told("suppression", "show", "ann@x.test", "--json").out)
    assert [row["scope"], row["others"][0]["scope"]] == ["campaigns", "zone:default"]
    assert "zone:default" in told("suppression", "show", "ann@x.test").out
    page = json.loads(told("suppression", "list", "--scope", "zone:default", "--json").out)
    assert [row["kind"] for row in page["rows"]] == ["manual"]
    file = tmp_path / "list.csv"
    told("suppression", "export", file)
    ran = told("suppression", "remove", "ann@x.test", "--scope", "campaigns")
    assert ran.out == "1 removed from the suppression list\n"
    assert told("suppression", "import", file).out == "1 added to the suppression list, 1 already known\n"
    file.write_text("email\nbob@x.test\n")
    told("suppression", "import", file, "--scope", "tenant:acme")
    assert json.loads(told("suppression", "show", "bob@x.test", "--json").out)["scope"] == "tenant:acme"
    told("suppression", "add", "cat@x.test", "--kind", "unsubscribe", "--scope", "list:acme/Weekly.example")
    page = json.loads(told("suppression", "list", "--scope", "list:acme/weekly.example", "--json").out)
    assert [(row["address"], row["scope"]) for row in page["rows"]] == [("cat@x.test", "list:acme/weekly.example")]
    ran = told("suppression", "remove", "cat@x.test", "--scope", "list:acme/weekly.example")
    assert ran.out == "1 removed from the suppression list\n"
    ran = told("suppression", "add", "ann@x.test", "--scope", "news")
    assert ran.code == Exit.DATA
    assert "'news' is not a scope; use all, campaigns, campaigns:TENANT" in ran.err


def test_explain_says_who_is_listed(served: Told, told: Told) -> None:
    """By kind and scope, whether anything waits for the address or not."""
    one = served()
    told("suppression", "add", "ann@x.test", "--kind", "unsubscribe")
    ran = told("explain", "Ann@X.test")
    assert ran.code == Exit.OK
    assert "ann@x.test has been on the suppression list since" in ran.out
    assert "(unsubscribe): no mail of scope campaigns goes to it" in ran.out
    assert ran.out.endswith("Nothing is waiting for it\n")
    one.do(two_wait)
    ran = told("explain", "ann@x.test")
    assert "no mail of scope campaigns goes to it" in ran.out
    assert "Why recipient ann@x.test waits" in ran.out
    assert "suppression" not in told("explain", "bob@x.test").out


def test_domains_patterns_and_hashes(served: Told, told: Told, tmp_path: Path) -> None:
    """Added, shown by what they cover, explained, exported, imported again and removed."""
    one = served()
    entries = ["@gone.test", "@*.gone.test", "*+test@x.test", hash_of("bob@x.test")]
    assert told("suppression", "add", *entries).out == "4 added to the suppression list, 0 already known\n"
    assert hash_of("bob@x.test") in told("suppression", "show", "Bob@x.test").out
    ran = told("explain", "ann+test@x.test")
    assert "pattern:*+test@x.test, which covers ann+test@x.test, has been on the suppression list since" in ran.out
    ran = told("suppression", "explain", "a@gone.test")
    assert "a@gone.test is covered by @gone.test, which is on the suppression list (manual)" in ran.out
    assert "@gone.test is on the suppression list" in told("suppression", "explain", "@gone.test").out
    ran = told("suppression", "remove", "a@gone.test")
    assert (ran.code, "a@gone.test has no entry of its own; @gone.test covers it" in ran.err) == (Exit.DATA, True)
    one.do(two_wait)
    file = tmp_path / "list.csv"
    told("suppression", "export", file)
    assert told("suppression", "remove", *entries).out == "4 removed from the suppression list\n"
    assert told("suppression", "import", file).out == "4 added to the suppression list, 0 already known\n"
    page = json.loads(told("suppression", "list", "--json").out)
    assert [row["address"] for row in page["rows"]] == [
        "@*.gone.test", "@gone.test", "pattern:*+test@x.test", hash_of("bob@x.test"),
    ]  # fmt: skip
    ran = told("suppression", "add", "gone.test")
    assert (ran.code, "write @gone.test for all of a domain" in ran.err) == (Exit.DATA, True)


@pytest.mark.parametrize(
    ("content", "said", "stored"),
    [
        ("{hash}\n{HASH}\nsha256:{other}\n", "read as a list without a header", ["sha256:{hash}", "sha256:{other}"]),
        ("ann@x.test\n@gone.test\n\nbot*@*\n", "a list without a header",
         ["@gone.test", "ann@x.test", "pattern:bot*@*"]),
        ("SHA-256,kind\n{hash},complaint\n", "addresses in SHA-256", ["sha256:{hash}"]),
        ("domain\ngone.test\n*.gone.test\n@x.test\n", "domains in domain", ["@*.gone.test", "@gone.test", "@x.test"]),
        ("email,reason\n*@gone.test,x\n\"\"\"a*b\"\"@x.test\",y\n", "addresses in email",
         ["@gone.test", '"a*b"@x.test']),
    ],
)  # fmt: skip
def test_lists_of_others(served: Told, told: Told, tmp_path: Path, content: str, said: str, stored: list[str]) -> None:
    """One entry a line without a header, a column of hashes or of domains, or all mixed; twice changes nothing."""
    served()
    terms = {name: hash_of(f"{name}@x.test").removeprefix("sha256:") for name in ("hash", "other")}
    terms["HASH"] = terms["hash"].upper()
    file = tmp_path / "list.csv"
    file.write_text(content.format(**terms))
    ran = told("suppression", "import", file)
    assert (ran.code, said in ran.err) == (Exit.OK, True), ran.err
    assert f"{len(stored)} added" in ran.out
    assert "0 added" in told("suppression", "import", file).out
    page = json.loads(told("suppression", "list", "--json").out)
    assert sorted(row["address"] for row in page["rows"]) == sorted(one.format(**terms) for one in stored)
    told("suppression", "export", tmp_path / "out.csv")
    told("suppression", "import", tmp_path / "out.csv")
    assert json.loads(told("suppression", "list", "--json").out) == page


def test_who_is_not_listed(served: Told, told: Told) -> None:
    """Asking for, or removing, somebody who is not there is said in one sentence."""
    served()
    ran = told("suppression", "show", "ann@x.test")
    assert (ran.code, ran.err) == (Exit.DATA, "zonemta: ann@x.test is not on the suppression list\n")
    assert json.loads(told("suppression", "show", "ann@x.test", "--json").out) is None
    ran = told("suppression", "remove", "ann@x.test")
    assert ran.code == Exit.DATA
    assert "none of them is on the suppression list; `zonemta suppression list`" in ran.err


def test_what_is_exported_can_be_imported(served: Told, told: Told, tmp_path: Path) -> None:
    """All fields survive, with commas, quotes and other alphabets; importing twice changes nothing."""
    served()
    told("suppression", "add", "ann@x.test", "--reason", 'she said "no", twice', "--campaign", "spring")
    told("suppression", "add", "jos\u00e9@b\u00fccher.test", "--kind", "complaint", "--evidence", "report 7")
    file = tmp_path / "list.csv"
    assert told("suppression", "export", file).out == f"2 entries written to {file}\n"
    before = json.loads(told("suppression", "list", "--json").out)["rows"]
    assert told("suppression", "export").out == file.read_text()
    told("suppression", "remove", *(row["address"] for row in before))
    assert told("suppression", "import", file).out == "2 added to the suppression list, 0 already known\n"
    assert told("suppression", "import", file).out == "0 added to the suppression list, 2 already known\n"
    after = json.loads(told("suppression", "list", "--json").out)["rows"]
    for row in (*before, *after):
        row["since_ms"] //= 1000
    assert after == before


def test_a_list_of_addresses_alone(served: Told, told: Told, tmp_path: Path) -> None:
    """One column is enough, with a byte order mark, in any number; --kind says the rest."""
    served()
    file = tmp_path / "old.csv"
    lines = "".join(f"r{number}@x.test\n" for number in range(2500))
    file.write_text(f"\ufeffEmail\n{lines}\n")
    ran = told("suppression", "import", file, "--kind", "hard-bounce")
    assert ran.out == "2,500 added to the suppression list, 0 already known\n"
    assert json.loads(told("suppression", "show", "r7@x.test", "--json").out)["kind"] == "hard-bounce"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"name\nann\n", "its first line names no column address or email"),
        (b"", "its first line names no column address or email"),
        (b"em\xffil\nann@x.test\n", "it is not UTF-8; save the file as CSV in UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file(served: Told, told: Told, tmp_path: Path, content: bytes, sentence: str) -> None:
    """One sentence that says what, and where it is known the line."""
    served()
    file = tmp_path / "list.csv"
    file.write_bytes(content)
    ran = told("suppression", "import", file)
    assert ran.code == Exit.DATA
    assert sentence in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (b"\xff\xfe@x.test,,", "it is not UTF-8; save the file as UTF-8"),
        (b"cy@x.test,,yesterday", "since is 'yesterday'; write a date such as 2026-03-01"),
        (b"cy,,", "'cy' is not an address; give one such as ann@example.com"),
        (b"cy@x.test,angry,", "there is no kind 'angry'; use hard-bounce, manual"),
        (b",unsubscribe,", "there is no address"),
        (b"cy@x.test <dan@x.test>,,", "is not an address"),
    ],
)
def test_a_bad_row_keeps_nobody_else_out(
    served: Told, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes, sentence: str
) -> None:
    """Good rows go in, the bad one is named with file and line and is in a file of its own; the exit status says so."""
    served()
    monkeypatch.chdir(tmp_path)
    Path("old.csv").write_bytes(b"email,kind,since\nann@x.test,unsubscribe,\n" + bad + b"\nbob@x.test,,\n")
    ran = told("suppression", "import", "old.csv")
    assert (ran.code, ran.out) == (Exit.DATA, "2 added to the suppression list, 0 already known\n")
    assert "old.csv:3: " in ran.err
    assert sentence in ran.err
    assert "1 of 3 row is bad; all of them, with reasons, are in old.rejects.csv" in ran.err
    rows = list(csv.DictReader(Path("old.rejects.csv").read_text().splitlines()))
    assert [(row["file"], row["line"], sentence in row["problem"]) for row in rows] == [("old.csv", "3", True)]
    assert Path("old.rejects.csv").stat().st_mode & 0o777 == 0o600
    assert [row["address"] for row in json.loads(told("suppression", "list", "--json").out)["rows"]] == [
        "bob@x.test", "ann@x.test",
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_what_spreadsheets_write_can_be_imported(
    served: Told, told: Told, tmp_path: Path, encoding: str, separator: str
) -> None:
    """Whatever stands between columns, in any Unicode, with names beside the addresses; how it is read is said."""
    served()
    rows = [
        ["Name", "E-Mail", "Reason"],
        ["J\u00f6rg", "J\u00f6rg <JORG@x.test>", "said no"],
        ["Ann", '"""Ann, M."" <ann@x.test>"', "a"],
    ]
    rows.append(["Bob", "mailto:bob@x.test", "b"])
    file = tmp_path / "list.txt"
    file.write_text("\r\n".join(map(separator.join, rows)) + "\r\n", encoding, newline="")
    ran = told("suppression", "import", file)
    assert (ran.code, ran.out) == (Exit.OK, "3 added to the suppression list, 0 already known\n")
    assert ran.err.count("\n") == 1
    assert "between columns; addresses in E-Mail" in ran.err
    entries = json.loads(told("suppression", "list", "--json").out)["rows"]
    assert [row["address"] for row in entries] == ["ann@x.test", "bob@x.test", "jorg@x.test"]
    assert entries[2]["reason"] == "said no"


def test_a_list_from_standard_input(served: Told, told: Told, zonemta: Told, tmp_path: Path) -> None:
    """As a pipe gives it."""
    served()
    ran = zonemta(
        "suppression",
        "import",
        "-",
        "--folder",
        tmp_path,
        stdin="sep=;\naddress;kind\nann@x.test;complaint\n".encode("utf-16"),
    )
    assert (ran.code, ran.out, ran.err) == (Exit.OK, "1 added to the suppression list, 0 already known\n", "")


def test_add_understands_names_beside_addresses(served: Told, told: Told) -> None:
    """What is pasted from a mail program is the person, and nobody with a bracket in the domain."""
    served()
    told("suppression", "add", "Ann <ann@x.test>", "mailto:bob@x.test?subject=no")
    assert [row["address"] for row in json.loads(told("suppression", "list", "--json").out)["rows"]] == [
        "ann@x.test", "bob@x.test",
    ]  # fmt: skip


def test_a_file_that_is_not_there(served: Told, told: Told, tmp_path: Path) -> None:
    """The operating system's reason, with a remedy."""
    served()
    ran = told("suppression", "import", tmp_path / "none.csv")
    assert ran.code == Exit.NO_INPUT
    assert "none.csv: no such file or directory; name one that exists" in ran.err


def test_no_file_is_made_if_no_queue_answers(told: Told, tmp_path: Path) -> None:
    """An export that cannot be made leaves nothing behind that looks like one."""
    ran = told("suppression", "export", tmp_path / "list.csv")
    assert ran.code == Exit.UNAVAILABLE
    assert not (tmp_path / "list.csv").exists()


def test_forget(served: Told, told: Told) -> None:
    """All that waits for a person goes; without --keep it is said that mail may be sent again."""
    one = served()
    one.do(two_wait)
    told("suppression", "add", "bob@x.test", "ann@x.test")
    ran = told("forget", "BOB@x.test")
    assert ran.code == Exit.OK
    assert ran.out.startswith("1 recipients removed from the queue\nits entry was removed from the suppression list")
    assert told("suppression", "show", "bob@x.test").code == Exit.DATA
    kept = told("forget", "ann@x.test", "--keep").out
    assert kept.startswith("1 recipients removed from the queue\nlog lines written until now may name the person")
    assert json.loads(told("suppression", "show", "ann@x.test", "--json").out)["kind"] == "erased"
    assert json.loads(told("queue", "size", "--json").out)["total"]["messages"] == 0


def test_forget_looks_into_plans(served: Told, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the folder one is in, or of others: those that name the person are named, and deleted where that is asked."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    served()
    monkeypatch.chdir(tmp_path)
    for name, people in (("may", ["Ann@x.test", "bob@x.test"]), ("june", ["xann@x.test", "ann+news@x.test"])):
        folder = tmp_path / "plans" / f"{name}.plan"
        (folder / "chunks").mkdir(parents=True)
        body = json.dumps({"campaign": name, "recipients": [[one, "A"] for one in people]}).encode()
        parquet.write_table(pa.table({"chunk": ["main-0"], "body": [body]}), folder / "chunks" / "part-0.parquet")
        (folder / "report.json").write_text("{}")
    (tmp_path / "plans" / "july.plan").mkdir()
    (tmp_path / "plans" / "july.plan" / "rejects.csv").write_text("file,line,problem\nl.csv,3,Ann <ANN@x.test\n")
    bad = tmp_path / "plans" / "list.rejects.csv"
    bad.write_text("file,line,problem,email\nl.csv,3,bad,Ann <ANN@x.test\n")
    assert told("forget", "ann@x.test").code == Exit.OK
    monkeypatch.chdir(tmp_path / "plans")
    ran = told("forget", "ann@x.test")
    assert (ran.code, "july.plan, list.rejects.csv, may.plan: name the person still" in ran.err) == (
        Exit.PROBLEMS,
        True,
    )
    ran = told("forget", "ann@x.test", "--subaddresses")
    assert "july.plan, june.plan, list.rejects.csv, may.plan: name the person still" in ran.err
    monkeypatch.chdir(tmp_path)
    ran = told("forget", "ann@x.test", "--plans", "plans", "--delete-plans")
    assert (ran.code, "plans/may.plan: named the person; deleted" in ran.out) == (Exit.OK, True)
    assert [folder.name for folder in (tmp_path / "plans").iterdir()] == ["june.plan"]
    told("suppression", "add", "ann@x.test")
    for wrong in (
        ("--plans", "none"),
        ("--archive", "none"),
        ("--lake", "none"),
        ("--lake", "plans", "--proof", "own"),
    ):
        Path("own").write_text("notes")
        ran = told("forget", "ann@x.test", *wrong)
        assert (ran.code, ran.out) in ((Exit.NO_INPUT, ""), (Exit.DATA, ""))
        assert re.search("none: there is no such folder|own: is not the proof of an erasure", ran.err)
        assert told("suppression", "show", "ann@x.test").code == Exit.OK, "what is refused erases nothing"


def test_forget_says_what_is_no_address(served: Told, told: Told) -> None:
    """Nothing is removed for a slip of the pen."""
    served()
    ran = told("forget", "bob")
    assert ran.code == Exit.DATA
    assert "'bob' is not an address; give one such as ann@example.com" in ran.err
