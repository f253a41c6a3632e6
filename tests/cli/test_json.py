"""--json of commands that do something: one document on standard output, and nothing else there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zonemta_py.cli.terminal.errors import Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.queue.queue import LocalQueue

RECIPIENTS = ("ann@example.org", "ben@example.org")


def test_orders_to_a_queue(served: Callable[..., Any], zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """Each says what it has done, to whom."""

    async def put(queue: LocalQueue) -> str:
        body = b"Subject: Hello\r\n\r\nHi\r\n"
        recipients = [Recipient(one) for one in RECIPIENTS]
        return (await queue.accept(Envelope("a@example.com", recipients, len(body), user="ann"), body)).id

    id = served().do(put)
    (tmp_path / "list.csv").write_text("address\ncat@example.org\nno address\n")

    def told(*words: object, code: Exit = Exit.OK) -> Any:
        ran = zonemta(*words, "--json", "--folder", tmp_path)
        assert ran.code == code, ran
        return json.loads(ran.out)

    message = told("mailq")  # one object for each message, in one line
    assert (message["id"], message["user"]) == (id, "ann")
    assert [(one["recipient"], one["state"]) for one in message["recipients"]] == [
        (one, "queued") for one in RECIPIENTS
    ]
    assert told("suppression", "add", "x@example.org") == {"added": 1, "known": 0}
    imported = told("suppression", "import", tmp_path / "list.csv", code=Exit.DATA)
    assert imported == {"added": 1, "known": 0, "rows": 2, "rejected": 1, "rejects": "list.rejects.csv"}
    forgotten = told("forget", RECIPIENTS[0])
    assert (forgotten["removed"], forgotten["plans_left"], forgotten["sinks"]["rings"]) == (1, [], 0)
    copied = told("backup", tmp_path / "copy")
    assert (copied["folder"], copied["bytes"] > 0) == (str(tmp_path / "copy"), True)


def test_commands_without_a_queue(zonemta: Callable[..., Any], tmp_path: Path) -> None:
    """What they check, and what they make."""
    file = tmp_path / "zonemta.toml"

    def told(*words: object) -> Any:
        ran = zonemta(*words, "--json")
        assert ran.code == Exit.OK, ran
        return json.loads(ran.out)

    made = told("dkim", "new", "example.org", "a", "--type", "ed25519", "--key", tmp_path / "a.pem")
    assert (made["name"], made["file"]) == ("a._domainkey.example.org", str(tmp_path / "a.pem"))
    assert made["record"].startswith("v=DKIM1")
    file.write_text(made["table"])
    checked = told("config", "check", file)
    assert (checked["zones"], type(checked["warnings"]), len(checked["listeners"])) == (["default"], list, 1)
    shown = told("config", "show", file)
    assert shown["dkim"][0]["selector"] == "a"
    rules = told("rules", "check")
    assert (rules["problems"], sum(rules["classes"].values())) == ([], rules["rules"])
    key = told("api-key", "new", "shop", "--role", "read")
    assert key["key"] != key["hash"]
    assert (key["name"], key["role"]) == ("shop", "read")
    template = tmp_path / "letter.eml"
    template.write_text("From: a@example.org\nSubject: Hi\n\nHi\n")
    assert told("campaign", "check", template) == {"template": str(template)}
