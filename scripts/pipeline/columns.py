"""The synthetic mix by the column: millions of bronze rows in seconds, drawn with numpy, written as ingest does.

Every message has one recipient. Rows are as SCHEMA.md says (ENVELOPE, START, DELIVERY, FINISH); shares are `model`'s.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import model
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zonemta_py.pipeline.journal.schema import ROWS
from zonemta_py.pipeline.lake import bronze

START_MS = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 86_400_000
CHUNK = 100_000
ATTEMPTS_PER_MESSAGE = 1.17
_HEX = np.array([f"{byte:02x}" for byte in range(256)], dtype="S2")
_PLACEHOLDER = re.compile(r"\{(ip|to|tag)\}")
_ANSWERS = [answer for provider in model.PROVIDERS for answer in provider.answers] + [model.BLOCKED, model.EXPIRED]
_ZONES, _SOURCES = list(model.ZONES), [source for _, sources in model.ZONES.values() for source in sources]
_DOMAINS = [domain for provider in model.PROVIDERS for domain in provider.domains]
_SITES = [provider.sites[n % len(provider.sites)] for provider in model.PROVIDERS for n in range(len(provider.domains))]
_TYPES = ("ENVELOPE", "START", "DELIVERY", "FINISH")
_ENVELOPE, _START, _DELIVERY, _FINISH = range(4)
Columns = dict[str, Any]


def make_bronze(lake: Path, attempts: int = 1_000_000, days: int = 7, seed: int = 1) -> int:
    """Writes `<lake>/bronze/day=…/` with about so many attempts; returns the rows."""
    die = np.random.default_rng(seed)
    total = max(1, round(attempts / ATTEMPTS_PER_MESSAGE))
    seq, number = 1, 0
    for day in range(days):
        messages = total // days + (day < total % days)
        for _ in range(0, messages, CHUNK):
            count = min(CHUNK, messages)
            messages -= count
            table = _chunk(die, count, day, days, number, seq)
            _write(lake / "bronze", table, seq)
            seq, number = seq + table.num_rows, number + count
    return seq - 1


def _write(folder: Path, table: pa.Table, seq: int) -> None:
    """As ingest writes a segment, with its own code."""
    files = bronze.Files(folder, f"{seq:016d}")
    for name in _TYPES:
        for batch in table.filter(pc.equal(table["type"], name)).combine_chunks().to_batches():
            files.add(batch)
    files.finish()


def _chunk(die: np.random.Generator, count: int, day: int, days: int, number: int, seq: int) -> pa.Table:
    mail = _messages(die, count, day, days, number)
    tries = _attempts(die, mail, days)
    own = tries["message"]
    last = np.append(own[1:] != own[:-1], True)
    kinds = np.repeat([_ENVELOPE, _START, _DELIVERY, _FINISH], [count, len(own), len(own), count])
    at = np.concatenate((mail["at"], tries["at"], tries["end"], tries["end"][last]))
    message = np.concatenate((np.arange(count), own, own, own[last]))
    attempt = np.concatenate((np.full(count, -1), np.arange(len(own)), np.arange(len(own)), np.full(count, -1)))
    order = np.lexsort((kinds, at))
    return _table(kinds[order], at[order], message[order], attempt[order], mail, tries, seq)


def _messages(die: np.random.Generator, count: int, day: int, days: int, number: int) -> Columns:
    at = START_MS + day * DAY_MS + np.sort(die.triangular(0, 0.5, 1, count) * DAY_MS).astype(np.int64)
    zone = die.choice(len(_ZONES), count, p=[share for share, _ in model.ZONES.values()])
    widths = np.array([len(sources) for _, sources in model.ZONES.values()])
    source = (np.cumsum(widths) - widths)[zone] + die.integers(0, 1 << 30, count) % widths[zone]
    provider = die.choice(len(model.PROVIDERS), count, p=[one.share for one in model.PROVIDERS])
    places = np.array([len(one.domains) for one in model.PROVIDERS])
    domain = (np.cumsum(places) - places)[provider] + die.integers(0, 1 << 30, count) % places[provider]
    names = len(model.CAMPAIGNS)
    turn = ((at - START_MS) / (days * DAY_MS) * names + die.random(count) - 0.5).astype(int).clip(0, names - 1)
    ids = _hex((at << 20) | (number + np.arange(count)) & 0xFFFFF)
    users = pc.cast(pa.array(die.integers(0, 5_000_000, count)), pa.string())
    address = _join("user", users, "@", _pick(_DOMAINS, domain))
    bulk, own = _ZONES.index("bulk"), _ZONES.index("default")
    return {
        "at": at, "zone": zone, "source": source, "provider": provider, "domain": domain, "id": ids, "address": address,
        "campaign": np.where(zone == bulk, turn, -1), "size": die.lognormal(9.5, 0.8, count).astype(np.int64),
        "tenant": np.where(zone == own, -1, die.integers(0, len(model.TENANTS), count)),
    }  # fmt: skip


def _attempts(die: np.random.Generator, mail: Columns, days: int) -> Columns:
    """One row per attempt, those of a message together: which message, when, with which answer."""
    deferred = np.array([one.deferred for one in model.PROVIDERS])[mail["provider"]]
    bounced = np.array([one.bounced for one in model.PROVIDERS])[mail["provider"]]
    bounced = np.where(mail["campaign"] == model.CAMPAIGNS.index(model.BAD_CAMPAIGN), model.BAD_SHARE, bounced)
    took = np.array([one.took_ms for one in model.PROVIDERS])
    alive = np.arange(len(mail["at"]))
    at = mail["at"] + die.exponential(2000, len(alive)).astype(np.int64)
    rows = []
    for tries in range(len(model.RETRY_S) + 1):
        share = (mail["at"][alive] - START_MS) / (days * DAY_MS)
        blocked = _blocked(mail, alive, share) & (die.random(len(alive)) < 0.9)
        draw = np.where(blocked, 1.0, die.random(len(alive)))
        waits = draw < (deferred[alive] if tries == 0 else 0.35)
        verdict = np.where(waits, 2, np.where(die.random(len(alive)) < bounced[alive], 3, 1))
        answer = _answers(die, verdict, mail["provider"][alive])
        answer[blocked], verdict[blocked] = len(_ANSWERS) - 2, 2
        if tries == len(model.RETRY_S):
            answer[verdict == 2], verdict[verdict == 2] = len(_ANSWERS) - 1, 3
        end = at + (die.lognormal(0, 0.5, len(alive)) * took[mail["provider"][alive]]).astype(np.int64).clip(5)
        again = verdict == 2
        wait = model.RETRY_S[min(tries, len(model.RETRY_S) - 1)] * 1000 * die.uniform(0.8, 1.2, len(alive))
        due = np.where(again, end + wait.astype(np.int64), 0)
        rows.append((alive, at, end, due, answer, verdict, np.full(len(alive), tries)))
        alive, at = alive[again], due[again]
    names = ("message", "at", "end", "due", "answer", "verdict", "tries")
    tries_ = dict(zip(names, map(np.concatenate, zip(*rows, strict=True)), strict=True))
    order = np.lexsort((tries_["tries"], tries_["message"]))
    made = {name: column[order] for name, column in tries_.items()}
    return made | {"reply": _replies(die, made, mail), "tls": _tls(die, made, mail)}


def _blocked(mail: Columns, alive: np.ndarray, share: np.ndarray) -> np.ndarray:
    provider = [one.name for one in model.PROVIDERS].index(model.BLOCKED_PROVIDER)
    there = (mail["provider"][alive] == provider) & (mail["source"][alive] == _SOURCES.index(model.BLOCKED_SOURCE))
    return there & (share >= model.BLOCKED_FROM) & (share < model.BLOCKED_TO)


def _answers(die: np.random.Generator, verdict: np.ndarray, provider: np.ndarray) -> np.ndarray:
    """Index into _ANSWERS, drawn by share."""
    found = np.zeros(len(verdict), dtype=np.int64)
    base = 0
    for index, one in enumerate(model.PROVIDERS):
        for kind in (1, 2, 3):
            choices = [base + n for n, answer in enumerate(one.answers) if answer.verdict == kind]
            weights = np.array([_ANSWERS[n].share for n in choices])
            here = (provider == index) & (verdict == kind)
            found[here] = die.choice(choices, int(here.sum()), p=weights / weights.sum())
        base += len(one.answers)
    return found


def _replies(die: np.random.Generator, tries: Columns, mail: Columns) -> pa.Array:
    """The answers' texts with their variable parts filled in, group by group, then put back into order."""
    parts, places = [pa.array([], pa.string())], [np.array([], dtype=np.int64)]
    for index, answer in enumerate(_ANSWERS):
        here = np.flatnonzero(tries["answer"] == index)
        if not len(here):
            continue
        message = tries["message"][here]
        fill = {
            "ip": _pick(_SOURCES, mail["source"][message]),
            "to": mail["address"].take(pa.array(message)),
            "tag": _hex(die.integers(0, 1 << 62, len(here)), 10),
        }
        pieces = _PLACEHOLDER.split(answer.text)
        columns = [fill[piece] if n % 2 else piece for n, piece in enumerate(pieces)]
        parts.append(_join(*columns) if len(columns) > 1 else pa.array([answer.text] * len(here)))
        places.append(here)
    back = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(back))


def _tls(die: np.random.Generator, tries: Columns, mail: Columns) -> np.ndarray:
    """0: plaintext, else 1 + index into TLS."""
    share = np.array([one.tls for one in model.PROVIDERS])[mail["provider"][tries["message"]]]
    reached = np.array([answer.stage not in ("connect", "queue") for answer in _ANSWERS])[tries["answer"]]
    version = 1 + (die.random(len(share)) < 0.2)
    return np.where(reached & (die.random(len(share)) < share), version, 0)


def _table(
    kind: np.ndarray, at: np.ndarray, message: np.ndarray, attempt: np.ndarray, mail: Columns, tries: Columns, seq: int
) -> pa.Table:
    envelope, tried, result = kind == _ENVELOPE, attempt >= 0, kind == _DELIVERY
    rows, attempt = len(kind), attempt.clip(0)
    answer = tries["answer"][attempt]
    provider, source, domain = mail["provider"][message], mail["source"][message], mail["domain"][message]
    campaign, tenant = mail["campaign"][message], mail["tenant"][message]
    site, address = _pick(_SITES, domain), _mask(mail["address"].take(pa.array(message)), kind != _FINISH)
    ids, sources = mail["id"].take(pa.array(message)), _pick(_SOURCES, source)
    remote = _join(site, "[203.0.113.", pc.cast(pa.array(domain % 250 + 1), pa.string()), "]:25")
    reached = np.array([one.stage not in ("connect", "queue") for one in _ANSWERS])[answer]
    zones, tenants = mail["zone"][message], _pick(model.TENANTS, tenant)
    flow = (pc.fill_null(column, "") for column in (tenants, _pick(model.CAMPAIGNS, campaign)))
    made: Columns = {
        "seq": np.arange(seq, seq + rows), "part": np.zeros(rows, dtype=np.int32), "at": _time(at),
        "type": _pick(_TYPES, kind), "id": ids, "zone": _mask(_pick(_ZONES, zones), kind != _FINISH),
        "recipient": address, "sender": _mask(_join("bounce+", ids, "@src.example"), envelope),
        "size": _mask(pa.array(mail["size"][message]), envelope | (kind == _START)),
        "received_at": _mask(_time(mail["at"][message]), envelope),
        "campaign": _mask(_pick(model.CAMPAIGNS, campaign), envelope), "tenant": _mask(tenants, envelope),
        "origin": _mask(_constant("198.51.100.7", rows), envelope),
        "user": _mask(pc.fill_null(tenants, "office"), envelope),
        "protocol": _mask(_constant("ESMTPSA", rows), envelope),
        "subject": _mask(_join(_pick(_ZONES, zones), ": news of the day"), envelope),
        "lease": _mask(pa.array(seq + attempt), tried),
        "destination": _mask(_join(site, "~", sources, "~~", next(flow), "~", next(flow)), tried),
        "verdict": _mask(_pick(("", "delivered", "deferred", "bounced"), tries["verdict"][attempt]), result),
        **_of_answers(answer, result),
        "reply": _mask(tries["reply"].take(pa.array(attempt)), result),
        "relayed": _mask(pa.array(np.zeros(rows, dtype=bool)), result),
        "due_at": _mask(_time(tries["due"][attempt]), result & (tries["due"][attempt] > 0)),
        "remote": _mask(pc.if_else(pa.array(reached), remote, ""), result), "local": _mask(sources, result),
        "tls": _mask(_pick(("", *model.TLS), tries["tls"][attempt]), result),
        "started_at": _mask(_time(tries["at"][attempt]), tried),
        "took_ms": _mask(pa.array((tries["end"] - tries["at"])[attempt].astype(np.int32)), result),
        "source": _mask(sources, result), "site": _mask(site, result),
        "provider": _mask(_pick([one.name for one in model.PROVIDERS], provider), tried),
        "segment": _constant(f"{seq:016d}.journal", rows),
    }  # fmt: skip
    columns = [made[field.name] if field.name in made else pa.nulls(rows, field.type) for field in ROWS]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def _of_answers(answer: np.ndarray, result: np.ndarray) -> Columns:
    """The columns that are the answer's alone."""
    return {
        "code": _mask(pa.array(np.array([one.code for one in _ANSWERS], dtype=np.int32)[answer]), result),
        "enhanced": _mask(_pick([one.enhanced for one in _ANSWERS], answer), result),
        "stage": _mask(_pick([one.stage for one in _ANSWERS], answer), result),
        "class": _mask(_pick([one.kind or None for one in _ANSWERS], answer), result),
        "rule": _mask(_pick([one.rule or None for one in _ANSWERS], answer), result),
    }


# -- columns


def _pick(names: Any, index: np.ndarray) -> pa.Array:
    """names[index] as text; null where the index is negative."""
    return pa.array(list(names), pa.string()).take(pa.array(index, mask=index < 0))


def _mask(column: pa.Array, there: np.ndarray) -> pa.Array:
    return pc.if_else(pa.array(there), column, pa.scalar(None, column.type))


def _join(*columns: Any) -> pa.Array:
    return pc.binary_join_element_wise(*columns, "")


def _constant(text: str, rows: int) -> pa.Array:
    return pa.array([text], pa.string()).take(pa.array(np.zeros(rows, dtype=np.int32)))


def _time(ms: np.ndarray) -> pa.Array:
    return pa.array(ms * 1000, pa.timestamp("us", tz="UTC"))


def _hex(numbers: np.ndarray, digits: int = 16) -> pa.Array:
    """The last so many hexadecimal digits of each number."""
    octets = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - digits // 2 :]
    return pa.array(_HEX[octets].view(f"S{digits}").reshape(-1).astype(f"U{digits}"), pa.string())
