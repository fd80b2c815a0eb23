-- Which brokers used more than their limits, and when?
--
-- Each report is compared with the highest limit in force within :settle_s seconds before it was
-- published, as usage is measured over a window and a new limit takes time to arrive. A limit is in
-- force until the next one. One row per unbroken run of reports above it. Where enforced is false
-- (a soft or shadow group, or a partial roll-out), the broker was not limited but would have been.
-- :tolerance = 0.05  fraction of the limit by which usage may exceed it
-- :settle_s = 5  seconds for which the previous limit still counts
-- :reports = 1  fewest reports in a row that count; 2 leaves out the burst of a token bucket
-- violations: rows where enforced
WITH events AS (
  SELECT
    broker, resource_group, dimension, reported_at AS instant, used_per_s,
    CAST(NULL AS DOUBLE) AS limit_per_s, CAST(NULL AS DOUBLE) AS highest,
    CAST(NULL AS BIGINT) AS limit_epoch, CAST(NULL AS BIGINT) AS limit_seq,
    CAST(NULL AS BOOLEAN) AS enforced
  FROM usage_values
  UNION ALL
  SELECT
    broker, resource_group, dimension, round_at, NULL, limit_per_s,
    greatest(limit_per_s, lag(limit_per_s, 1, CAST('Infinity' AS DOUBLE)) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq
    )),
    epoch, seq, enforced
  FROM limit_values
),
as_of AS (
  SELECT
    broker, resource_group, dimension, instant, used_per_s,
    last_value(limit_epoch) IGNORE NULLS OVER so_far AS limit_epoch,
    last_value(limit_seq) IGNORE NULLS OVER so_far AS limit_seq,
    last_value(enforced) IGNORE NULLS OVER so_far AS enforced,
    greatest(
      last_value(limit_per_s) IGNORE NULLS OVER so_far,
      max(highest) OVER (
        -- A window frame takes no parameter, so time is in units of :settle_s (at least 1 ns).
        PARTITION BY broker, resource_group, dimension
        ORDER BY unix_millis(instant) / greatest(:settle_s * 1000, 1e-6)
        RANGE BETWEEN 1 PRECEDING AND CURRENT ROW
      )
    ) AS limit_per_s
  FROM events
  WINDOW so_far AS (
    PARTITION BY broker, resource_group, dimension ORDER BY unix_millis(instant)
    RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
judged AS (
  SELECT *, coalesce(used_per_s > limit_per_s * (1 + :tolerance), false) AS is_over
  FROM as_of
  WHERE used_per_s IS NOT NULL AND instant >= :since
),
runs AS (
  SELECT
    *,
    count_if(NOT is_over) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY instant
    ) AS run
  FROM judged
),
ranked AS (
  SELECT
    *,
    min(instant) OVER whole_run AS first_at, max(instant) OVER whole_run AS last_at,
    count(*) OVER whole_run AS reports,
    row_number() OVER (
      PARTITION BY broker, resource_group, dimension, run
      ORDER BY used_per_s - limit_per_s DESC, instant
    ) AS place
  FROM runs
  WHERE is_over
  WINDOW whole_run AS (PARTITION BY broker, resource_group, dimension, run)
)
SELECT
  w.broker, w.resource_group, w.dimension, w.first_at, w.last_at, w.reports,
  w.limit_per_s, w.used_per_s AS worst_used_per_s, l.reason, w.enforced
FROM ranked AS w
LEFT JOIN limit_values AS l
  ON l.broker = w.broker AND l.resource_group = w.resource_group AND l.dimension = w.dimension
  AND l.epoch = w.limit_epoch AND l.seq = w.limit_seq
WHERE w.place = 1 AND w.reports >= :reports
ORDER BY w.first_at, w.broker, w.resource_group, w.dimension
