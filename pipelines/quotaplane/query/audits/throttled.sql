-- Who was throttled, how much, and why?
--
-- One row per broker and group. throttled: messages, bytes or partitions that the broker refused or
-- delayed; empty: it does not report that, and is listed if it used :saturated_from of an enforced
-- limit, or more. reports: so many of its reports say so. limit_per_s and reason: of the limit in
-- force in the worst report.
-- :saturated_from = 0.95  fraction of its limit; a broker that uses as much is at its limit
WITH events AS (
  SELECT
    broker, resource_group, dimension, unix_millis(reported_at) AS at_ms, used_per_s,
    throttled_per_s, coalesce(window_ms, 0) / 1000 AS window_s,
    CAST(NULL AS DOUBLE) AS limit_per_s, CAST(NULL AS BOOLEAN) AS enforced,
    CAST(NULL AS BIGINT) AS limit_epoch, CAST(NULL AS BIGINT) AS limit_seq
  FROM usage_values
  WHERE reported_at <= :until
  UNION ALL
  SELECT
    broker, resource_group, dimension, unix_millis(round_at), NULL, NULL, NULL,
    limit_per_s, enforced AND NOT ended, epoch, seq
  FROM limit_values
),
as_of AS (
  SELECT
    broker, resource_group, dimension, at_ms, used_per_s, throttled_per_s, window_s,
    last_value(limit_per_s) IGNORE NULLS OVER so_far AS limit_per_s,
    last_value(enforced) IGNORE NULLS OVER so_far AS enforced,
    last_value(limit_epoch) IGNORE NULLS OVER so_far AS limit_epoch,
    last_value(limit_seq) IGNORE NULLS OVER so_far AS limit_seq
  FROM events
  WINDOW so_far AS (
    PARTITION BY broker, resource_group, dimension ORDER BY at_ms
    RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
judged AS (
  SELECT
    *,
    CASE
      WHEN throttled_per_s IS NULL THEN coalesce(
        enforced AND used_per_s > 0 AND used_per_s >= :saturated_from * limit_per_s, false
      )
      ELSE throttled_per_s > 0
    END AS is_throttled
  FROM as_of
  WHERE used_per_s IS NOT NULL AND timestamp_millis(at_ms) >= :since
),
ranked AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY broker, resource_group, dimension
      ORDER BY coalesce(throttled_per_s, 0) DESC, used_per_s / nullif(limit_per_s, 0) DESC, at_ms
    ) AS place,
    min(at_ms) OVER whole AS first_ms, max(at_ms) OVER whole AS last_ms,
    sum(throttled_per_s * window_s) OVER whole AS throttled,
    count(*) OVER whole AS reports
  FROM judged
  WHERE is_throttled
  WINDOW whole AS (PARTITION BY broker, resource_group, dimension)
)
SELECT
  w.broker, w.resource_group, w.dimension, timestamp_millis(w.first_ms) AS first_at,
  timestamp_millis(w.last_ms) AS last_at, w.throttled, w.throttled_per_s AS most_throttled_per_s,
  w.reports,
  CASE WHEN w.limit_per_s < CAST('Infinity' AS DOUBLE) THEN w.limit_per_s END AS limit_per_s,
  l.reason
FROM ranked AS w
LEFT JOIN limit_values AS l
  ON l.broker = w.broker AND l.resource_group = w.resource_group AND l.dimension = w.dimension
  AND l.epoch = w.limit_epoch AND l.seq = w.limit_seq
WHERE w.place = 1
ORDER BY w.throttled DESC, w.broker, w.resource_group, w.dimension
