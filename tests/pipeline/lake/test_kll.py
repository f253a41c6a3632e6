"""KLL sketches that Spark reads."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from zonemta_py.pipeline.lake import kll

RANKS = (0.01, 0.25, 0.5, 0.75, 0.95, 0.99)
SIZES = (1, 2, 5, 199, 200, 201, 333, 334, 1_000, 6_517, 100_000)


@pytest.fixture(scope="module")
def groups():
    die = np.random.default_rng(1)
    return [np.sort(die.lognormal(6, 1, size).astype(np.int64)) for size in SIZES]


@pytest.fixture(scope="module")
def frame(spark, groups):
    """A row for each group: n, sketch."""
    starts = np.cumsum([0, *SIZES[:-1]])
    sketches = kll.sketches(np.concatenate(groups), starts)
    return spark.createDataFrame(pa.table({"n": pa.array(SIZES), "sketch": sketches})).localCheckpoint()


def off_by(ordered, value, rank):
    """How far the value is from that rank; nothing where it lies among equals that span it."""
    low, high = (np.searchsorted(ordered, value, side) / len(ordered) for side in ("left", "right"))
    return max(0.0, low - rank, rank - high)


def test_spark_reads_counts_and_quantiles(frame, groups):
    """Whatever its size, a sketch has its group's count, and quantiles within 1 % of rank."""
    quantiles = [F.kll_sketch_get_quantile_bigint("sketch", F.lit(rank)) for rank in RANKS]
    rows = frame.select("n", F.kll_sketch_get_n_bigint("sketch"), *quantiles).orderBy("n").collect()
    for (size, count, *values), ordered in zip(rows, groups, strict=True):
        assert count == size
        assert all(off_by(ordered, value, rank) <= 0.01 for value, rank in zip(values, RANKS, strict=True))


def test_spark_merges_them(frame, groups):
    """Together they are the sketch of all values, within 2 % of rank."""
    merged = frame.agg(F.kll_merge_agg_bigint("sketch").alias("sketch"))
    quantiles = [F.kll_sketch_get_quantile_bigint("sketch", F.lit(rank)) for rank in RANKS]
    count, *values = merged.select(F.kll_sketch_get_n_bigint("sketch"), *quantiles).first()
    ordered = np.sort(np.concatenate(groups))
    assert count == len(ordered)
    assert all(off_by(ordered, value, rank) <= 0.02 for value, rank in zip(values, RANKS, strict=True))


def test_small_ones_are_as_sparks_own(spark):
    """Up to 200 values, bytes differ from Spark's in the order of the values only."""
    for size in (1, 2, 7, 200):
        numbers = spark.range(size).select((F.col("id") * 7919 % 1009).alias("value"))
        (row,) = numbers.agg(F.kll_sketch_agg_bigint("value").alias("sketch")).collect()
        ordered = np.sort(np.arange(size, dtype=np.int64) * 7919 % 1009)
        (mine,) = kll.sketches(ordered, np.array([0])).to_pylist()
        assert len(mine) == len(row.sketch)
        assert mine[:40] == bytes(row.sketch)[:40]
        longs = [np.sort(np.frombuffer(one[40:], "<i8")) for one in (mine, bytes(row.sketch))]
        assert (longs[0] == longs[1]).all()


@given(st.integers(201, 50_000))
def test_no_value_is_lost_on_the_way_up(size):
    """The levels' values, times their weights, are as many as there were, and fit their sketch."""
    levels = kll.compacted(np.arange(size))
    assert sum(len(level) << height for height, level in enumerate(levels)) == size
    assert sum(map(len, levels)) <= kll.room(len(levels))
    assert all((np.diff(level) >= 0).all() for level in levels)
