"""The journal as rows: one row per record and recipient. What each column holds, and for which record types: SCHEMA.md.

`ROWS` is the Arrow form (readers build record batches of it), `rows()` the same for Spark. Both are made from one
table, so they cannot drift apart. Columns are only ever added at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_COLUMNS = (
    "seq bigint not null, part int not null, at timestamp not null, type string not null, "
    "id string, zone string, recipient string, "
    "sender string, size bigint, received_at timestamp, campaign string, tenant string, origin string, user string, "
    "protocol string, subject string, lease bigint, destination string, verdict string, code int, enhanced string, "
    "reply string, stage string, class string, rule string, relayed boolean, due_at timestamp, remote string, "
    "local string, tls string, started_at timestamp, took_ms int, source string, site string, provider string, "
    "reason string, what string, kind string, name string, value string, segment string, "
    "node string, metadata string, headers string"
)
_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def _field(text: str) -> pa.Field:
    name, kind, *constraint = text.split()
    return pa.field(name, _ARROW[kind], nullable=not constraint)


ROWS: pa.Schema = pa.schema([_field(text) for text in _COLUMNS.split(", ")])
"""Arrow schema of the rows; timestamps are microseconds (the journal has milliseconds), UTC."""

NAMES: tuple[str, ...] = tuple(ROWS.names)
"""The columns in their order."""


def rows() -> StructType:
    """Spark's schema of the rows. Needs pyspark, but no session."""
    from pyspark.sql.types import (
        BooleanType,
        DataType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )  # fmt: skip

    kinds: dict[pa.DataType, DataType] = {
        _ARROW["bigint"]: LongType(),
        _ARROW["int"]: IntegerType(),
        _ARROW["string"]: StringType(),
        _ARROW["boolean"]: BooleanType(),
        _ARROW["timestamp"]: TimestampType(),
    }
    return StructType([StructField(field.name, kinds[field.type], field.nullable) for field in ROWS])
