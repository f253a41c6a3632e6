"""Times the preparation of a list, all steps and the plan written, beside DuckDB doing the same.

    .venv/bin/python scripts/pipeline/bench/prepare.py [--rows 1000000] [--memory 2.5] [--folder /var/tmp]

Prints seconds of each step, rows/s, processor seconds and peak memory of all processes (PSS), and DuckDB's figures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import tempfile
import threading
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

TOP = Path(__file__).resolve().parents[3]
FIELDS = ("first_name", "last_name", "city", "month", "offer", "token")
_DOMAINS = ["gmail.com"] * 40 + ["outlook.com"] * 15 + ["yahoo.com"] * 12 + ["icloud.com"] * 8
_DOMAINS += [f"d{number}.net" for number in range(22)] + ["bücher.de", "GMX.de", "gmial.com"]


def write_list(path: Path, rows: int) -> None:
    """6 % duplicates, 1 % wrong, 0.5 % reserved, some in capitals or with blanks, some with international domains."""
    chance = random.Random(1)
    with path.open("w") as file:
        file.write(",".join(("email", *FIELDS)) + "\n")
        for number in range(rows):
            who = chance.randrange(2 * rows) if chance.random() < 0.06 else number
            address, kind = f"user{who}@{_DOMAINS[(who * 2654435761 >> 7) % 100]}", chance.random()
            if kind < 0.01:
                address = address.replace("@", " at ")
            elif kind < 0.02:
                address = f"  {address.upper()} "
            elif kind < 0.025:
                address = f"x{number}@example.org"
            file.write(f'{address},First{number % 997},Last{number % 1999},City{number % 301},May,"offer, ')
            file.write(f'{number % 13} seats",tok{number:08x}\n')


def write_suppressed(path: Path) -> None:
    """Every second of the first 100,000, if it is a customer of the largest provider."""
    rows = (f"user{number}@gmail.com,complaint\n" for number in range(0, 100_000, 2))
    path.write_text("address,kind\n" + "".join(rows))


def with_spark(list_: Path, folder: Path, memory_gb: float) -> float:
    """Seconds without the session's start. Prints the steps."""
    from zonemta_py.pipeline.prepare.plan import plan
    from zonemta_py.pipeline.prepare.settings import Lane, Settings
    from zonemta_py.pipeline.spark.session import session

    begin = time.monotonic()
    spark = session("local[2]", memory_gb, long=True)
    print(f"session: {time.monotonic() - begin:.1f} s")
    settings = Settings(
        "bench", fields={name: name for name in FIELDS}, canary=0.02,
        lanes=(Lane("a", "192.0.2.1", 2), Lane("a", "192.0.2.2")),
        providers=_providers(),
    )  # fmt: skip
    suppressed = folder / "suppressed.csv"
    begin = last = time.monotonic()
    label = "start"

    def say(step: str) -> None:
        nonlocal last, label
        now = time.monotonic()
        print(f"  {label}: {now - last:.1f} s", flush=True)
        last, label = now, step

    from zonemta_py.pipeline.prepare.suppressed import read

    made = plan(spark, settings, str(list_), folder / "bench.plan", lambda own: read(own, str(suppressed)), say=say)
    say("end")
    print("  " + ", ".join(f"{row['step']} {row['removed']:,}" for row in made.report["steps"] if row["removed"]))
    return time.monotonic() - begin


_DUCK = """
SET threads = 2; SET memory_limit = '{memory}GB'; SET temp_directory = '{folder}/duck.tmp';
CREATE TEMP TABLE suppressed AS
  SELECT lower(trim(address)) AS key, min(kind) AS kind
  FROM read_csv('{folder}/suppressed.csv', header = true) GROUP BY 1;
CREATE TEMP TABLE people AS
WITH listed AS (
  SELECT trim(email, '{spaces}') AS text, row_number() OVER () AS line, * EXCLUDE (email)
  FROM read_csv('{list}', header = true, all_varchar = true)
), rows AS (
  SELECT text, line, {given}, regexp_matches(concat({names}), '[\\x00-\\x1f\\x7f"\\\\]') AS special FROM listed
), packed AS (
  SELECT text, line, {marks} AS marks, CASE
    WHEN regexp_full_match(text, '{ordinary}') THEN split_part(text, '@', 1) || '@' || lower(split_part(text, '@', 2))
    WHEN text <> '' THEN spelled(text) END AS address,
    CASE WHEN special THEN (json_array({cleaned})::VARCHAR)[2:-2]
      ELSE '"' || concat_ws('","', {names}) || '"' END AS row
  FROM rows
), judged AS (
  SELECT *, CASE WHEN coalesce(text, '') = '' THEN 'no address' WHEN address IS NULL THEN 'syntax'
    WHEN split_part(address, '@', -1) NOT LIKE '%.%' OR split_part(address, '.', -1) NOT SIMILAR TO '[a-z].*'
      THEN 'impossible domain'
    WHEN split_part(address, '.', -1) IN {reserved_top} OR regexp_extract(address, '[^.@]*\\.[^.@]*$') IN {reserved}
      THEN 'reserved domain' WHEN length(row) > 65536 THEN 'fields too long' END AS reason
  FROM packed
), once AS (
  SELECT CASE WHEN reason IS NULL THEN lower(address) ELSE reason || hash(text) % 20 END AS key, count(*) AS n,
    arg_min(struct_pack(text := CASE WHEN reason IS NOT NULL THEN text END, address := address, row := row,
      marks := marks, reason := reason, line := line), line) AS first
  FROM judged GROUP BY 1
), split AS (SELECT key, n, first.*, split_part(first.address, '@', -1) AS domain FROM once)
SELECT key, n, text, line, marks, kind, meant,
  coalesce(reason, CASE WHEN suppressed.key IS NOT NULL THEN 'suppressed' END) AS reason,
  coalesce(exact.provider, above.provider, '') AS provider,
  (hash(key) >> 11) / 9007199254740992.0 AS h, hash(key, 'lane') % 3 < 2 AS lane,
  hash(key, 'canary') % 50 = 0 AS canary,
  '[' || to_json(address) || ',' || row || ']' AS recipient
FROM split LEFT JOIN suppressed USING (key) LEFT JOIN typos USING (domain) LEFT JOIN providers exact USING (domain)
  LEFT JOIN providers above ON above.domain = regexp_extract(split.domain, '[^.]*\\.[^.]*$');
COPY (
  WITH sizes AS (
    SELECT lane, canary, greatest(1, ceil(count(*) / 500)) AS chunks FROM people WHERE reason IS NULL GROUP BY ALL
  ), made AS (
    SELECT lane, canary, chunks, floor(h * chunks) AS bucket, count(*) AS n,
      encode('{head}' || string_agg(recipient, ',' ORDER BY h) || ']}}') AS body
    FROM people JOIN sizes USING (lane, canary) WHERE reason IS NULL GROUP BY lane, canary, chunks, bucket
  )
  SELECT *, row_number() OVER (ORDER BY NOT canary, bucket / chunks, lane) AS position FROM made
) TO '{folder}/duck.parquet' (FORMAT parquet, COMPRESSION zstd);
"""
_COUNTED = """
SELECT reason, kind, provider, canary, lane, sum(n) AS read, count(*) AS people, sum(length(recipient)),
  sum(marks & 1), sum(marks >> 62)
FROM people GROUP BY reason, kind, provider, canary, lane
"""
_EXAMPLES = "SELECT reason, text, n, line FROM people WHERE reason <> 'suppressed' ORDER BY reason, line"
_TYPOS = "SELECT meant, count(*), min(key) FROM people WHERE meant IS NOT NULL GROUP BY meant ORDER BY 2 DESC LIMIT 50"


def with_duckdb(list_: Path, folder: Path, memory_gb: float) -> float:
    """Seconds; the same steps: addresses that are not ordinary go through the same Python function."""
    import duckdb

    from zonemta_py.pipeline.prepare.normalise import SPACES
    from zonemta_py.pipeline.prepare.spelling import spelled
    from zonemta_py.pipeline.prepare.validate import RESERVED_DOMAINS, RESERVED_TOP, typos

    begin = time.monotonic()
    base = duckdb.connect()
    text = duckdb.sqltype("VARCHAR")
    base.create_function("spelled", spelled, [text], text, null_handling="special")  # type: ignore[call-overload]
    _table(base, "typos", "meant", typos())
    _table(base, "providers", "provider", _providers())
    base.execute(
        _DUCK.format(
            memory=memory_gb, folder=folder, list=list_, spaces=SPACES, ordinary=_ordinary(), names=", ".join(FIELDS),
            given=", ".join(f"coalesce({name}, '') AS {name}" for name in FIELDS),
            marks=" + ".join(f"CASE WHEN trim({name}) = '' THEN {1 << i} ELSE 0 END" for i, name in enumerate(FIELDS)),
            cleaned=", ".join(f"regexp_replace({name}, '[\\x00-\\x1f\\x7f]+', ' ', 'g')" for name in FIELDS),
            reserved_top=RESERVED_TOP, reserved=RESERVED_DOMAINS,
            head=json.dumps({"campaign": "bench", "columns": FIELDS, "zone": "a"})[:-1] + ', "recipients": [',
        )
    )  # fmt: skip
    counted = base.execute(_COUNTED).fetchall()
    base.execute(_EXAMPLES).fetchall()
    base.execute(_TYPOS).fetchall()
    base.close()
    took = time.monotonic() - begin
    steps = {row[0] or "kept": 0 for row in counted}
    for row in counted:
        steps[row[0] or "kept"] += row[6] if row[0] in (None, "suppressed") else row[5]
    print("  " + ", ".join(f"{step} {n:,}" for step, n in sorted(steps.items())))
    return took


def _ordinary() -> str:
    from zonemta_py.pipeline.prepare.normalise import ORDINARY

    return ORDINARY.replace("\\z", "$").replace("'", "''")


def _table(base: duckdb.DuckDBPyConnection, name: str, value: str, rows: Mapping[str, str]) -> None:
    base.execute(f"CREATE TEMP TABLE {name} (domain VARCHAR, {value} VARCHAR)")
    listed = ", ".join(f"('{one}', '{other}')" for one, other in rows.items())
    base.execute(f"INSERT INTO {name} VALUES {listed}")


def _providers() -> dict[str, str]:
    tables = tomllib.loads((TOP / "config" / "providers.toml").read_text())["providers"]
    return {domain: table["name"] for table in tables for domain in table.get("domains", [])}


class Memory:
    """Peak PSS of this process and its children, and their processor seconds. `with Memory() as memory:`"""

    def __enter__(self) -> Memory:
        self._before = _processor_s()
        self.peak, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.processor_s = _processor_s() - self._before

    def _run(self) -> None:
        while not self._end.wait(0.5):  # of a large JVM, asking takes long itself
            self.peak = max(self.peak, sum(map(_pss, _tree(os.getpid()))))


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _tree(int(child))
    except OSError:  # it has just ended
        return found
    return found


def _processor_s() -> float:
    """Of all these processes, and of those of their children that have ended."""
    ticks = 0
    for pid in _tree(os.getpid()):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    import duckdb

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", type=float, default=2.5, help="of Spark's JVM, GB")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-prepare-", dir=given.folder))
    try:
        list_ = folder / "list.csv"
        write_list(list_, given.rows)
        write_suppressed(folder / "suppressed.csv")
        for name, run in (("DuckDB", with_duckdb), ("Spark", with_spark)):  # Spark's JVM stays
            try:
                with Memory() as memory:
                    took = run(list_, folder, given.memory)
            except duckdb.OutOfMemoryException as error:
                print(f"{name}: {str(error).splitlines()[0]}", flush=True)
                continue
            speed = given.rows / took
            print(
                f"{name}: {given.rows:,} rows in {took:.1f} s, {speed:,.0f}/s, {memory.processor_s:.0f} CPU s, "
                f"peak {memory.peak / 1e9:.2f} GB",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
