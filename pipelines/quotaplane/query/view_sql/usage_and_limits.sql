-- Usage beside the limits that were in force.
--
-- The limits of a broker and group are numbered: the highest number so far is of the newest one. The
-- number of a report counts those that limits were decided with. The others are there, too, as the
-- next report may say "unchanged"; in a pause of the job, leases end and brokers obey other limits.
WITH numbered AS (
  SELECT
    *, row_number() OVER (PARTITION BY broker, resource_group ORDER BY epoch, seq) AS limit_no
  FROM recent_limits
),
limits_in_order AS ({limits_in_order}),
events AS (
  SELECT
    broker, resource_group, unix_millis(round_at) AS at_ms, 0 AS is_report, limit_no, epoch, seq,
    false AS counted, CAST(NULL AS TIMESTAMP) AS reported_at, CAST(NULL AS BIGINT) AS window_ms,
    CAST(NULL AS TIMESTAMP) AS broker_started_at,
    {no_rates}
  FROM numbered
  UNION ALL
  SELECT
    broker, resource_group, unix_millis({reported_at}), 1, NULL, epoch, seq,
    coalesce(counted, true), {reported_at}, window_ms, broker_started_at,
    {rates}
  FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
),
filled AS (
  SELECT
    broker, resource_group, is_report, counted, reported_at, window_ms, broker_started_at,
    max(limit_no) OVER so_far AS limit_no, count_if(counted) OVER so_far AS report_no,
    {unchanged}
  FROM events
  WINDOW so_far AS (
    PARTITION BY broker, resource_group ORDER BY at_ms, is_report, epoch, seq
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
reports AS (
  SELECT * FROM (SELECT * FROM filled WHERE is_report = 1) AS reported
    by_dimension(used_per_s: %_per_s, throttled_per_s: throttled_%_per_s)
  WHERE used_per_s IS NOT NULL
),
limited AS (
  SELECT DISTINCT broker, resource_group, dimension
  FROM limits_in_order
  WHERE ended OR limit_per_s < CAST('Infinity' AS DOUBLE)
)
SELECT
  r.broker, r.resource_group, r.dimension, r.report_no, r.counted, r.reported_at, r.window_ms,
  r.broker_started_at, r.used_per_s, r.throttled_per_s, l.limit_per_s, l.enforced, l.ended,
  l.round_at AS limit_at,
  l.epoch AS limit_epoch, l.seq AS limit_seq, l.demand_per_s, l.quota_per_s, l.reason_code,
  l.reason_numbers, l.ended_because
FROM reports AS r
JOIN limited AS e
  ON e.broker = r.broker AND e.resource_group = r.resource_group AND e.dimension = r.dimension
LEFT JOIN limits_in_order AS l
  ON l.broker = r.broker AND l.resource_group = r.resource_group AND l.dimension = r.dimension
  AND l.limit_no = r.limit_no
