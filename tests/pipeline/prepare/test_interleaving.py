"""No provider is hit in one lump: every stretch of the order has each provider's share."""

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

from zonemta_py.pipeline.prepare.assign import HASH_BITS, assign
from zonemta_py.pipeline.prepare.order import Group, places
from zonemta_py.pipeline.prepare.settings import Lane, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 2_000
PROVIDERS = {"big.net": "big", "second.net": "second", "third.net": "third"}
SETTINGS = Settings(
    "may", canary=0.02, providers=PROVIDERS,
    lanes=(Lane("a", "192.0.2.1", 3), Lane("a", "192.0.2.2"), Lane("b", "192.0.2.3", 0.2)),
)  # fmt: skip


def ordered(spark: "SparkSession", count: int) -> list[str]:
    """Providers of so many recipients (40, 25 and 20 % large ones), as they go out after the canary."""
    domain = "CASE WHEN id % 20 < 8 THEN 'big.net' WHEN id % 20 < 13 THEN 'second.net' "
    domain += "WHEN id % 20 < 17 THEN 'third.net' ELSE concat('d', id % 97, '.net') END AS domain"
    people = spark.range(count).selectExpr("id", domain).selectExpr("domain", "concat('user', id, '@', domain) AS key")
    found = assign(people, SETTINGS).where("NOT canary").select("lane", "h", "provider").toArrow().to_pylist()
    lanes = Counter(row["lane"] for row in found)
    groups = [Group(False, 0, 1, lane, n, 40 * n) for lane, n in lanes.items()]
    sizes = {group.lane: group.chunks(SETTINGS) for group in groups}
    position = {(place.group.lane, place.bucket): place.position for place in places(groups, SETTINGS)}
    rows = [
        (position[row["lane"], row["h"] * sizes[row["lane"]] >> HASH_BITS], row["h"], row["provider"]) for row in found
    ]
    return [provider for *_, provider in sorted(rows)]


def test_every_window_has_each_large_providers_share(spark: "SparkSession") -> None:
    """In any 2,000 recipients in a row each large provider has its share of the whole, give or take a fifth of it."""
    order = ordered(spark, 60_000)
    for provider, n in Counter(order).most_common(len(PROVIDERS)):
        assert provider in PROVIDERS.values()
        share = n / len(order)
        before = [0, *accumulate(other == provider for other in order)]
        windows = [(after - first) / WINDOW for first, after in zip(before, before[WINDOW:], strict=False)]
        assert 0.8 * share <= min(windows) <= max(windows) <= 1.2 * share
