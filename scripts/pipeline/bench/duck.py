"""The lake's three tables in DuckDB: the same rows from the same bronze, two threads."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import duckdb

_DELIVERIES = """
with a as (
  select *, row_number() over w as attempt, first_value(started_at ignore nulls) over w as first_at,
    verdict in ('delivered', 'bounced') and 1 = sum((verdict in ('delivered', 'bounced'))::int) over w as final
  from {bronze} where type = 'DELIVERY' and verdict in ('delivered', 'deferred', 'bounced', 'held')
  window w as (partition by id, recipient order by seq, part rows between unbounded preceding and current row)
), e as (
  select id, arg_min({{'sender': sender, 'size': size, 'received_at': received_at, 'campaign': campaign,
    'tenant': tenant}}, seq) m
  from {bronze} where type = 'ENVELOPE' and part = 0 group by id
)
select a.id, recipient, lower(split_part(recipient, '@', 2)) as domain, zone, m.sender as sender,
  m.campaign as campaign, m.tenant as tenant,
  source, site, provider, started_at, a."at" as "at", took_ms, attempt, verdict, code, enhanced, reply,
  stage, class, rule, tls, remote, m.size as size, m.received_at as received_at, first_at, final, seq, part, day
from a left join e on a.id = e.id
"""
_OUTCOMES = """
with said as (
  select id, recipient, arg_max(verdict = 'held' or (type = 'IN_DOUBT' and reason = 'hold'), seq)
      filter (type <> 'ENVELOPE') as held,
    min("at") filter (type = 'REMOVED') as removed_at, min(received_at) as received_at, min(zone) as zone
  from {bronze} where type in ('ENVELOPE', 'DELIVERY', 'REMOVED', 'MOVED', 'IN_DOUBT') and recipient is not null
  group by all
), last as (
  select id, recipient, arg_max({{'ended': "at", 'n': attempt, 'verdict': verdict, 'code': code, 'enhanced': enhanced,
    'reply': reply, 'class': class, 'source': source, 'provider': provider, 'campaign': campaign, 'tenant': tenant,
    'first_at': first_at}}, attempt) as l
  from {deliveries} group by all
)
select said.id, said.recipient, case when l.verdict in ('delivered', 'bounced') then l.verdict
    when removed_at is not null then 'removed' when held then 'held' else 'waiting' end as state,
  coalesce(l.n, 0) as attempts, received_at, l.first_at as first_attempt_at, coalesce(removed_at, l.ended) as ended_at,
  epoch_ms(l.first_at - received_at) / 1000 as to_first_s, epoch_ms(l.ended - received_at) / 1000 as to_delivery_s,
  l.code as code, l.enhanced as enhanced, l.reply as reply, l.class as class, zone, l.source as source,
  l.provider as provider, l.campaign as campaign, l.tenant as tenant,
  make_timestamp_ms(('0x' || substr(said.id, 1, 11))::bigint)::date as day
from said left join last on said.id = last.id and said.recipient = last.recipient
"""
_DELIVERABILITY = """
select time_bucket(interval 5 minutes, "at") as since, zone, source, provider, campaign, tenant, count(*) as attempts,
  count_if(verdict = 'delivered') as delivered, count_if(verdict = 'deferred') as deferred,
  count_if(verdict = 'bounced') as bounced, count_if(attempt > 1) as retries,
  count_if(verdict = 'delivered' and tls <> '') as encrypted,
  histogram(class) filter (verdict = 'bounced') as bounced_by,
  histogram(class) filter (verdict = 'deferred') as deferred_by,
  approx_quantile(epoch_ms("at" - received_at), [0.5, 0.95, 0.99]) filter (verdict = 'delivered') as latency, day
from {deliveries} group by all
"""
QUERIES = {"deliveries": _DELIVERIES, "outcomes": _OUTCOMES, "deliverability": _DELIVERABILITY}


def main(lake: Path, target: Path, memory_gb: str) -> None:
    """Writes the tables below `target`; says how long it took."""
    begun = time.monotonic()
    base = duckdb.connect(
        config={"threads": 2, "memory_limit": f"{memory_gb}GB", "temp_directory": str(target / "tmp")}
    )
    base.execute("set TimeZone = 'UTC'; set preserve_insertion_order = false")
    places = {
        "bronze": f"read_parquet('{lake}/bronze/day=*/*.parquet', hive_partitioning = true)",
        "deliveries": f"read_parquet('{target}/deliveries/day=*/*.parquet', hive_partitioning = true)",
    }
    for name, query in QUERIES.items():
        options = "format parquet, compression zstd, compression_level 1, partition_by (day), overwrite true"
        base.execute(f"copy ({query.format(**places)}) to '{target / name}' ({options})")
    print(f"seconds {time.monotonic() - begun:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
