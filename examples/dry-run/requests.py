"""Writes a minute of requests of two users as Parquet: python requests.py FILE"""

import sys
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq

begin = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
rows = [
    {"entity": entity, "at": begin + timedelta(seconds=second / rate), "units": 1.0}
    for entity, rate in (("user=alice", 20), ("user=bob", 5))
    for second in range(60 * rate)
]
pq.write_table(pa.Table.from_pylist(rows), sys.argv[1], coerce_timestamps="us")
