"""A folder of one queue with all that there can be is taken over by three queues, and by one again.

Mail that waits, was put off, is held, stopped, in a campaign, in named queues, of an account with a quota, or under
idempotency keys; suppressions, and what came back; tasks that can be undone, and one that is under way when everything
is killed. What commands answer before must be what they answer after each change, and each repeated request gets its
first receipt. Then all is let go: everybody gets what is theirs exactly once, named queues keep their order, and the
account is refused when its quota is used up, not earlier or later.
"""

from __future__ import annotations

import asyncio
import base64
import email
import email.policy
import json
import os
import random
import shutil
import smtplib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from named_queues import client as named
from ports import kept_port

from survival import returns
from survival.command import Progress, command
from survival.ledger import Ledger
from survival.mixed import TEMPLATE
from survival.resize import MANY
from survival.rig import PATIENCE_S, TOP, Mta
from survival.sized import configure, resized
from zonemta_py.sink import Sink, SinkOptions

ACCOUNT, CLIENT, SPARE = "shop", "127.0.0.2", 8
"""The account's client connects from there; so many recipients of its quota are left at the end."""
UNDO_S = 86_400
SITES = [f"site{number}.test" for number in range(12)]
KINDS = ("plain", "later", "later", "gone")
NAMED = ("jobs", "mail.out", "later")
CAMPAIGNS = ("spring", "summer", "autumn")
MORE = (
    returns.MORE
    + """
[http]
enabled = true
port = {http}
[pull]
enabled = true
port = {pull}
[tls]
reports = true
[[accounts]]
name = "shop"
networks = ["127.0.0.2/32"]
recipients = ["{quota}/day"]
[[zones]]
name = "later"
recipient_domains = ["*.later.test"]
host = "127.0.0.1"
port = {sink}
"""
)
RULES = (
    "rcpt:/^later/ 450 4.2.1 not now",
    "rcpt:/^gone/ 550 5.1.1 nobody here",
)
VOLATILE = frozenset((
    "walked", "looked", "age_s", "now_ms", "queue", "seq", "since_s", "next_in_s", "for_s", "waits_s", "uptime_s",
    "rate_per_s", "eta_ms", "history", "number", "examples", "files", "life", "counted",
))  # fmt: skip
"""Fields that say how long something has lasted, or in which file it is; life: a recipient's, which grows while it is
stopped; counted: whether there was time to count all before it."""
MOVES = ("moved", "taken over")


class Site:
    """What was handed in, and what must become of it. owed: recipients and subjects that are still to come."""

    def __init__(self, folder: Path, sink_port: int, people: int, seed: int) -> None:
        self.dice, self.people = random.Random(seed), people
        self.kept = {name: kept_port() for name in ("port", "http", "pull")}
        ports = {name: one.getsockname()[1] for name, one in self.kept.items()}
        self.http, self.pull, self.mx = ports["http"], ports["pull"], ports["port"]
        self.of_account = people // 10
        more = MORE.format(**ports, quota=self.of_account + SPARE, sink=sink_port)
        self.more, self.sink_port = more, sink_port
        self.mta = Mta(folder / "queue", sink_port, home=folder, more=more, retry_min=600)
        self.owed = Counter[tuple[str, str]]()
        self.requests: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Requests with a key, and what they were answered with."""
        self.pushed: dict[str, list[bytes]] = {name: [] for name in NAMED}
        self.tasks: list[dict[str, Any]] = []
        self.ended_ms = 0.0

    def close(self) -> None:
        for one in self.kept.values():
            one.close()

    async def ask(self, question: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self.mta.ask, question, **arguments)

    # -- what is there

    async def fill(self, sink: Sink) -> None:
        await self._came_back(sink)
        for kind, name in (("zone", "bulk"), ("domain", SITES[0]), ("domain", SITES[1])):
            await self.ask("stop", kind=kind, name=name, cause="the trial")
        letters = [self._letter(number) for number in range(self.people)]
        await asyncio.to_thread(self._send, letters, "127.0.0.1")
        await asyncio.to_thread(self._send, [self._letter(number, "shop") for number in range(self.of_account)], CLIENT)
        await self._by_http()
        for name in NAMED:
            for number in range(self.people // 20):
                body = f"{name} {number}\r\n".encode() * self.dice.choice((1, 20_000))
                self.pushed[name].append(body)
                await named.push(self.pull, name, body, True)
        for name in NAMED:
            taken = await named.pop(self.pull, name, 1)
            assert taken is not None
            assert taken.body == self.pushed[name].pop(0)
        rows = [[f"listed{number}@{self.dice.choice(SITES)}", "manual", "by letter"] for number in range(30)]
        await self.ask("suppress", rows=rows)
        await self.ask("unsuppress", addresses=[rows[0][0]])
        await self.rest()
        await self._tasks()

    async def _came_back(self, sink: Sink) -> None:
        """Mail went out, and what is known about some of it came back."""
        count = self.people // 8
        await returns.Handing(self.mta.port, Ledger(), make=returns.news, series="first").hand_in(range(count))
        await self.mta.drained()
        sent = {one.recipients[0]: returns.sent_of(one) for one in sink.messages}
        handing = returns.Handing(
            self.mx, Ledger(), make=returns.back, sent=[sent[f"ann@p{number}.test"] for number in range(count)]
        )
        await handing.hand_in(range(count), returns.SESSIONS)
        broken = list[str]()
        await returns._suppressed(self.mta, count, broken)
        assert not broken, broken
        with smtplib.SMTP("127.0.0.1", self.mx) as server:
            server.sendmail("", ["fbl@src.test"], _DMARC)
            server.sendmail("bob@site1.test", [sent["ann@p0.test"].path], _AWAY)
        sink.messages.clear()

    def _letter(self, number: int, series: str = "letter") -> tuple[list[str], bytes, str]:
        """Recipients, text, parameters of MAIL."""
        dice, subject = self.dice, f"{series} {number}"
        people = [
            f"{dice.choice(KINDS)}.{series}{number}.{one}@{dice.choice((*SITES, 'bulk.test'))}"
            for one in range(dice.choice((1, 1, 1, 3, 10)) if series == "letter" else 1)
        ]
        waits = " HOLDFOR=7200" if dice.random() < 0.1 else ""
        body = b"x\r\n" * dice.choice((1, 100, 30_000, 300_000 if number % 50 == 0 else 10))
        campaign = "X-Campaign: named\r\nX-Tenant: acme\r\n" if dice.random() < 0.1 else ""
        self.owed.update((one, subject) for one in people if not one.startswith("gone"))
        return people, f"{campaign}Subject: {subject}\r\n\r\n".encode() + body, waits

    def _send(self, letters: list[tuple[list[str], bytes, str]], source: str) -> None:
        with smtplib.SMTP("127.0.0.1", self.mta.port, source_address=(source, 0)) as server:
            for people, data, waits in letters:
                refused = server.sendmail(
                    "n@src.test", people, data, mail_options=waits.split(), rcpt_options=["NOTIFY=NEVER"]
                )
                assert not refused, refused

    async def _by_http(self) -> None:
        for name in CAMPAIGNS:
            template = {"sender": "n@src.test", "template": _base64(TEMPLATE), "notify": "never"}
            await self._request("PUT", f"/v1/campaigns/{name}", {"json": template})
        for number in range(self.people // 5):
            rows = [[f"plain.b{number}.{one}@{self.dice.choice(SITES)}", f"b{number}.{one}"] for one in range(5)]
            batch = {"campaign": CAMPAIGNS[number % 3], "columns": ["name"], "recipients": rows}
            await self._keyed(f"batch {number}", {"json": batch})
            self.owed.update((address, f"For {name}") for address, name in rows)
            if number == 3:
                await self.ask("campaign-pause", name=CAMPAIGNS[0])
        for number in range(self.people // 5):
            to, subject = f"later.key{number}@{self.dice.choice(SITES)}", f"key {number}"
            message = {"from": {"address": "n@src.test"}, "to": [to], "subject": subject, "text": "hello"}
            await self._keyed(f"key {number}", {"json": message})
            self.owed[to, subject] += 1
        await self.ask("campaign-complete", name=CAMPAIGNS[1])

    async def _keyed(self, key: str, request: dict[str, Any]) -> None:
        request = {**request, "headers": {"Idempotency-Key": key}}
        self.requests.append((request, await self._request("POST", "/v1/inject", request)))

    async def _request(self, method: str, path: str, request: dict[str, Any]) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                token = (self.mta.folder / "http.token").read_text().strip()
                headers = {**request.get("headers", {}), "Authorization": f"Bearer {token}"}
                async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.http}", timeout=60) as client:
                    answer = await client.request(method, path, **(request | {"headers": headers}))
                if answer.status_code == 200:
                    return dict(answer.json())
                said = f"{answer.status_code} {answer.text[:500]}"
                assert answer.status_code in (503, 429, 409, 401), said
            except (httpx.HTTPError, OSError) as error:
                said = repr(error)
            assert time.monotonic() < until, said
            await asyncio.sleep(0.1)

    async def _tasks(self) -> None:
        for verb, site, more in (
            ("hold", SITES[2], {}), ("delete", SITES[3], {}), ("set", SITES[0], {"set": {"priority": 3}}),
            ("delete", SITES[4], {}), ("hold", SITES[5], {}),
        ):  # fmt: skip
            row = await self.ask(
                "task", verb=verb, where={"domain": site}, undo_s=UNDO_S, cause=f"{verb} {site}", **more
            )
            self.tasks.append(await self._ended(row["id"]))
        await self.ask("task-undo", id=self.tasks[3]["id"])
        await self._ended(self.tasks[3]["id"])

    async def _ended(self, task: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while (row := await self.ask("task-row", id=task))["state"] not in ("undoable", "done", "undone", "canceled"):
            assert time.monotonic() < until, row
            await asyncio.sleep(0.02)
        return dict(row)

    async def rest(self) -> None:
        """Nothing goes out any more."""
        quiet = 0
        before = None
        while quiet < 5:
            size = (await self.ask("size"))["total"]
            quiet = quiet + 1 if size == before and not size["leased"] else 0
            before = size
            await asyncio.sleep(0.3)

    # -- what is said of it

    def run(self, *words: str, mta: Mta | None = None) -> str:
        mta = mta or self.mta
        line = [sys.executable, "-m", "zonemta_py", *words, "--config", str(mta.config_file)]
        environment = os.environ | {"PYTHONPATH": str(TOP), "COLUMNS": "200"}
        ran = subprocess.run(line, cwd=TOP, env=environment, capture_output=True, text=True)
        return ran.stdout if not ran.returncode else f"exit {ran.returncode}: {ran.stderr[-500:]}"

    async def answers(self, tell: Callable[[str], None], every: int, mta: Mta | None = None) -> dict[str, Any]:
        """By the words of the command; of every so manieth one."""
        found = dict[str, Any]()
        looked_at = (("later.", SITES[6]), ("plain.l", SITES[0]), ("plain.b", SITES[1]), ("later.k", ""))
        owed = sorted(one for one, _ in self.owed)
        people = [next(one for one in owed if one.startswith(kind) and one.endswith(site)) for kind, site in looked_at]
        messages = [answer["id"] for _, answer in self.requests[-3:]]
        commands = [*map("{} --json".format, (
            "mailq", "queue list --limit 100000", "queue size", "queue in-doubt", "qshape", "standing", "accounts",
            "campaign list", *(f"campaign status {name}" for name in (*CAMPAIGNS, "named")),
            "suppression list", "suppression guards", "suppression explain ann@p0.test", "suppression show ann@p2.test",
            "task list", *(f"task show {row['id']}" for row in self.tasks), "feedback list", "warmup",
            *(f"trace {one}" for one in [*people, *messages, "ann@p0.test"]), *(f"explain {one}" for one in people),
            *(f"queue show {one}" for one in messages), f"tls report --day {time.strftime('%Y-%m-%d', time.gmtime())}",
            "log --since 3h", "log --since 3h --count-by zone",
        )), "suppression export"]  # fmt: skip
        for words in commands[::every]:
            found[words] = _plain(words, await asyncio.to_thread(self.run, *words.split(), mta=mta), self.ended_ms)
            tell(words)
        return found

    async def repeated(self) -> list[str]:
        """Requests whose repetition was answered otherwise than at first, but for saying so."""
        wrong = list[str]()
        for request, first in self.requests:
            again = await self._request("POST", "/v1/inject", request)
            if not again.pop("repeated") or again != {name: first[name] for name in again}:
                wrong.append(f"{request['headers']['Idempotency-Key']}: {first} at first, then {again}")
        return wrong

    # -- what becomes of it

    async def let_go(self) -> None:
        for row in self.tasks:
            if row["verb"] == "delete" and row["state"] == "undoable" and row["id"] != self.tasks[3]["id"]:
                await self.ask("task-undo", id=row["id"])
                await self._ended(row["id"])
        await self.ask("campaign-resume", name=CAMPAIGNS[0])
        for kind, name in (("zone", "bulk"), ("domain", SITES[0]), ("domain", SITES[1])):
            await self.ask("lift", kind=kind, name=name)
        await self._all("release")
        await self._all("requeue")
        for _ in range(60):  # what was being tried meanwhile, and waits ten hours for that
            total = (await self.ask("size"))["total"]
            if not (total["queued"] or total["leased"]):
                if not total["deferred"]:
                    return
                await self._all("requeue")
            await asyncio.sleep(1)

    async def _all(self, verb: str) -> None:
        row = await self.ask("task", verb=verb, where={"all": True}, cause="let go")
        await self._ended(row["id"])

    async def popped(self) -> list[str]:
        wrong = list[str]()
        for name in NAMED:
            bodies = [taken.body for _ in self.pushed[name] if (taken := await named.pop(self.pull, name, 0))]
            if bodies != self.pushed[name]:
                wrong.append(f"queue {name} gave {len(bodies)} messages in another order, of {len(self.pushed[name])}")
            if await named.pop(self.pull, name, 0) is not None:
                wrong.append(f"queue {name} gave one twice")
        return wrong

    def quota_left(self) -> int:
        """How many recipients the account may still have, by trying."""
        taken = 0
        with smtplib.SMTP("127.0.0.1", self.mta.port, source_address=(CLIENT, 0)) as server:
            while True:
                to, subject = f"plain.last{taken}@{SITES[6]}", f"last {taken}"
                try:
                    server.sendmail("n@src.test", [to], f"Subject: {subject}\r\n\r\nx\r\n")
                except smtplib.SMTPException:
                    return taken
                self.owed[to, subject] += 1
                taken += 1


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


_DMARC = (
    b"From: noreply-dmarc@provider.test\r\nSubject: Report Domain: src.test Submitter: provider.test Report-ID: 1\r\n"
    b'MIME-Version: 1.0\r\nContent-Type: application/zip; name="provider.test!src.test!1.zip"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\nUEsDBAoAAAAAAA==\r\n"
)
_AWAY = (
    b"From: bob@site1.test\r\nAuto-Submitted: auto-replied\r\nSubject: Out of office\r\n\r\nI am away until Monday.\r\n"
)


def _plain(words: str, said: str, ended_ms: float) -> Any:
    """What must be the same. ended_ms: when everything was killed; what is dated later was done when it ran again."""
    if "--json" not in words or said.startswith("exit "):
        return said
    try:
        rows = [json.loads(said)]
    except ValueError:
        rows = [json.loads(line) for line in said.splitlines()]
    found = _stripped(rows, (ended_ms, time.time() * 1000))
    return sorted(found, key=repr) if len(found) > 1 else found


def _stripped(value: Any, later: tuple[float, float]) -> Any:
    if isinstance(value, dict):
        return {name: _stripped(one, later) for name, one in value.items() if name not in VOLATILE}
    if isinstance(value, list):
        return [_stripped(one, later) for one in value if not (isinstance(one, dict) and one.get("what") in MOVES)]
    if isinstance(value, int) and any(later[0] <= value - after <= later[1] for after in (0, UNDO_S * 1000)):
        return "later"
    return value


def difference(before: Any, after: Any, where: str = "") -> str:
    """The first place where they differ; "": nowhere."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return next(filter(None, (difference(before[name], after[name], f"{where}.{name}") for name in before)), "")
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return next(filter(None, (difference(*two, f"{where}[{at}]") for at, two in pairs)), "")
    if before == after:
        return ""
    if isinstance(before, list) and isinstance(after, list):
        extra = [one for one in after if one not in before][:2]
        lacks = [one for one in before if one not in after][:2]
        return f"{where}: {len(before)} before, {len(after)} after; new {extra!r:.600}, gone {lacks!r:.600}"
    return f"{where}: {before!r:.300} before, {after!r:.300} after"


async def trial(
    folder: Path,
    *,
    people: int,
    turns: int = 2,
    every: int = 1,
    seed: int,
    progress: Progress = lambda done, note: None,
) -> dict[str, Any]:
    """Runs it and returns figures; "broken" lists what differed, or did not come. turns: how often the number of queues
    is changed, 1 to 3, 3 to 1 …; every: only each so manieth command is asked."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    begun, broken = time.monotonic(), list[str]()
    async with Sink(SinkOptions(listen=("127.0.0.1:0",), keep=True, rules=RULES)) as first:
        port = first.port
        site = Site(folder, port, people, seed)
        mta = site.mta
        mta.start()
        try:
            await mta.taking()
            await site.fill(first)
            size = (await site.ask("size"))["total"]
            under_way = await site.ask("task", verb="set", where={"zone": "bulk"}, set={"priority": 5}, undo_s=UNDO_S)
            site.tasks.append(under_way)
            mta.end()  # in the middle of it
            site.ended_ms = time.time() * 1000
            before = await _of_one(site, folder / "copy", partial(progress, 0), every)
            queues = 1
            for turn in range(turns):
                queues = MANY if queues == 1 else 1
                if turn == 0:
                    configure(mta, queues)
                    mta.start()
                    await mta.taking()
                else:
                    await resized(mta, queues)
                after = await site.answers(partial(progress, turn), every)
                for words, answer in before.items():
                    if what := difference(answer, after[words]):
                        broken.append(f"turn {turn + 1}, to {queues}: {words}: {what}")
                broken += [f"turn {turn + 1}, to {queues}: {one}" for one in (await site.repeated())[:3]]
                progress(turn + 1, "")
                broken += [f"tasks are not alike: {one}" for one in await _unlike(site)]
            broken += await site.popped()
            left = await asyncio.to_thread(site.quota_left)
            if left != SPARE:
                broken.append(f"the account could send to {left} more, not {SPARE}")
        except BaseException:
            mta.end()
            site.close()
            raise
    async with Sink(SinkOptions(listen=(f"127.0.0.1:{port}",), keep=True, rules=RULES[1:])) as second:
        try:
            await site.let_go()
            await mta.drained()
            in_doubt = mta.in_doubt()
        finally:
            mta.end()
            site.close()
    came = [(to, _subject(one.body)) for one in (*first.messages, *second.messages) for to in one.recipients]
    broken += _judged(site, Counter(came), set(in_doubt))
    broken += await mta.problems()
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "messages": size["messages"],
        "recipients": {state: size[state] for state in ("queued", "deferred", "held", "deleted") if size.get(state)},
        "answers": len(before),
        "turns": turns,
        "requests_repeated": len(site.requests) * turns,
        "owed": sum(site.owed.values()),
        "came": len(came),
        "in_doubt": len(in_doubt),
        "broken": broken,
    }


async def _of_one(site: Site, copy: Path, tell: Callable[[str], None], every: int) -> dict[str, Any]:
    """What one queue says of a copy of the folder, once what was under way has ended; nothing goes out."""
    shutil.copytree(site.mta.folder, copy / "queue", ignore=shutil.ignore_patterns("identity", "socket", "supervisor"))
    text = site.mta.config_file.read_text()
    one = Mta(copy / "queue", site.sink_port, home=copy)
    one.port = site.mta.port
    one.config_file.write_text(text.replace(str(site.mta.folder), str(copy / "queue")))
    mine, site.mta = site.mta, one
    one.start()
    try:
        await one.taking()
        await site._ended(site.tasks[-1]["id"])
        return await site.answers(tell, every, one)
    finally:
        one.end()
        site.mta = mine


async def _unlike(site: Site) -> list[str]:
    """Of the task that was under way: what it has not done."""
    row = await site._ended(site.tasks[-1]["id"])
    site.tasks[-1] = row
    return [] if row["done"] and row["done"] == row["count"] else [f"{row['done']} of {row['count']}"]


def _subject(body: bytes) -> str:
    return str(email.message_from_bytes(body, policy=email.policy.default)["Subject"])


def _judged(site: Site, came: Counter[tuple[str, str]], in_doubt: set[str]) -> list[str]:
    broken = list[str]()
    if lost := [one for one in site.owed if not came[one]]:
        broken.append(f"lost: {len(lost)} ({lost[:5]})")
    if twice := [one for one in came if came[one] > 1 and one[0] not in in_doubt]:
        broken.append(f"twice: {len(twice)} ({twice[:5]})")
    if foreign := [one for one in came if one not in site.owed and one[0] != "n@src.test"]:
        broken.append(f"not meant to come: {len(foreign)} ({foreign[:5]})")
    return broken


if __name__ == "__main__":
    sys.exit(
        command(
            "one-to-three", __doc__, "One queue, three, and one", trial,
            people=(400, "letters; all else grows with them"), turns=(2, "changes of the number of queues"),
        )
    )  # fmt: skip
