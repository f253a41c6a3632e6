"""Times the preparation of a list, all steps and the plan written, beside DuckDB doing the same.

    .venv/bin/python scripts/pipeline/bench/prepare.py [--rows 1000000] [--memory 2.5] [--folder /var/tmp]

Prints seconds of each step, rows/s, the peak memory of all processes (PSS), and DuckDB's figures.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import threading
import time
import tomllib
from pathlib import Path

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


def with_spark(list_: Path, folder: Path, memory_gb: float) -> float:
    """Seconds without the session's start. Prints the steps."""
    from zonemta_py.pipeline.prepare.plan import plan
    from zonemta_py.pipeline.prepare.settings import Lane, Settings
    from zonemta_py.pipeline.session import session

    begin = time.monotonic()
    spark = session("local[2]", memory_gb)
    print(f"session: {time.monotonic() - begin:.1f} s")
    tables = tomllib.loads((TOP / "config" / "providers.toml").read_text())["providers"]
    settings = Settings(
        "bench", fields={name: name for name in FIELDS}, canary=0.02,
        lanes=(Lane("a", "192.0.2.1", 2), Lane("a", "192.0.2.2")),
        providers={domain: table["name"] for table in tables for domain in table.get("domains", [])},
    )  # fmt: skip
    suppressed = folder / "suppressed.csv"
    with suppressed.open("w") as file:
        file.write("address,kind\n" + "".join(f"user{number}@gmail.com,complaint\n" for number in range(0, 100_000, 2)))
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
SET threads = 2; SET memory_limit = '{memory}GB';
CREATE TEMP TABLE suppressed AS SELECT lower(trim(address)) AS key, kind FROM read_csv('{suppressed}', header = true);
CREATE TEMP TABLE people AS
WITH rows AS (
  SELECT *, trim(email) AS text, row_number() OVER () AS line
  FROM read_csv('{list}', header = true, all_varchar = true)
), judged AS (
  SELECT *, split_part(text, '@', 1) || '@' || lower(split_part(text, '@', 2)) AS address, CASE
    WHEN NOT regexp_full_match(text, '{ordinary}') THEN 'syntax'
    WHEN regexp_matches(lower(text), '@(.*\\.)?example\\.(com|net|org)$') THEN 'reserved' END AS reason
  FROM rows
), once AS (
  SELECT lower(address) AS key, arg_min(address, line) AS address, count(*) AS n,
    arg_min(json_array(address, {fields}), line) AS recipient
  FROM judged WHERE reason IS NULL GROUP BY 1
)
SELECT once.*, hash(key) % 1000003 / 1000003.0 AS h, hash(key, 'lane') % 3 < 2 AS lane,
  hash(key, 'canary') % 50 = 0 AS canary
FROM once ANTI JOIN suppressed USING (key);
COPY (
  WITH sizes AS (SELECT lane, canary, greatest(1, ceil(count(*) / 500)) AS chunks FROM people GROUP BY ALL)
  SELECT lane, canary, floor(h * chunks) AS bucket, count(*) AS n,
    '{{"recipients": [' || string_agg(recipient, ',' ORDER BY h) || ']}}' AS body
  FROM people JOIN sizes USING (lane, canary) GROUP BY ALL
) TO '{out}' (FORMAT parquet, COMPRESSION zstd);
"""


def with_duckdb(list_: Path, folder: Path, memory_gb: float) -> float:
    """Seconds; the same steps but for IDNA, typos and the report's examples."""
    import duckdb

    from zonemta_py.pipeline.prepare.normalise import ORDINARY

    pattern = ORDINARY.replace("\\z", "$").replace("'", "''")
    begin = time.monotonic()
    duckdb.sql(
        _DUCK.format(
            memory=memory_gb,
            suppressed=folder / "suppressed.csv",
            list=list_,
            ordinary=pattern,
            fields=", ".join(FIELDS),
            out=folder / "duck.parquet",
        )
    )
    return time.monotonic() - begin


class Memory:
    """Peak PSS of this process and its children, looked at ten times a second. `with Memory() as memory:`"""

    def __enter__(self) -> Memory:
        self.peak, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.1):
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


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", type=float, default=2.5, help="of Spark's JVM, GB")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-prepare-", dir=given.folder))
    try:
        list_ = folder / "list.csv"
        write_list(list_, given.rows)
        for name, run in (("Spark", with_spark), ("DuckDB", with_duckdb)):
            with Memory() as memory:
                took = run(list_, folder, given.memory)
            speed = given.rows / took
            print(
                f"{name}: {given.rows:,} rows in {took:.1f} s, {speed:,.0f}/s, peak {memory.peak / 1e9:.2f} GB",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
