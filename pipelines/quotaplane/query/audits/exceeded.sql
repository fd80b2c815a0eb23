-- Which brokers used more than their limits, and when?
--
-- Each report that counted is compared with the limit in force when it was published. Usage is
-- measured over a window, and a new limit takes time to arrive: a limit that is newer than :settle_s
-- is replaced by the highest of the limits that were in force in the :settle_s before it. One row
-- per unbroken run of reports above the limit. Where enforced is false (a soft or shadow group, or a
-- partial roll-out), the broker was not limited but would have been.
-- :tolerance = 0.05  fraction of the limit by which usage may exceed it
-- :settle_s = 5  seconds for which the previous limit still counts
-- :reports = 1  fewest reports in a row that count; 2 leaves out the burst of a token bucket
-- violations: rows where enforced
WITH changes AS (
  SELECT
    broker, resource_group, dimension, epoch, seq, unix_millis(round_at) AS at_ms,
    greatest(limit_per_s, lag(limit_per_s, 1, CAST('Infinity' AS DOUBLE)) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq
    )) AS highest_per_s
  FROM recent_limit_values
),
settling AS (
  SELECT
    broker, resource_group, dimension, epoch, seq,
    max(highest_per_s) OVER (
      -- A window frame takes no parameter, so time is in units of :settle_s (at least 1 ns).
      PARTITION BY broker, resource_group, dimension
      ORDER BY at_ms / greatest(:settle_s * 1000, 1e-6)
      RANGE BETWEEN 1 PRECEDING AND CURRENT ROW
    ) AS highest_per_s
  FROM changes
),
above AS (
  SELECT
    broker, resource_group, dimension, report_no, reported_at, used_per_s, limit_per_s, enforced,
    limit_at, limit_epoch, limit_seq, demand_per_s, quota_per_s, reason_code, reason_numbers,
    ended_because,
    -- With a window function in between, engines join only the few rows that are left.
    row_number() OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY report_no
    ) AS place
  FROM usage_and_limits
  WHERE counted AND reported_at >= :since AND used_per_s > limit_per_s * (1 + :tolerance)
),
judged AS (
  SELECT
    a.broker, a.resource_group, a.dimension, a.report_no, a.reported_at, a.used_per_s, a.enforced,
    a.limit_per_s AS limit_in_force_per_s, a.demand_per_s, a.quota_per_s, a.reason_code,
    a.reason_numbers, a.ended_because,
    CASE WHEN unix_millis(a.reported_at) - unix_millis(a.limit_at) <= :settle_s * 1000
      THEN s.highest_per_s ELSE a.limit_per_s END AS limit_per_s
  FROM above AS a
  JOIN settling AS s
    ON s.broker = a.broker AND s.resource_group = a.resource_group AND s.dimension = a.dimension
    AND s.epoch = a.limit_epoch AND s.seq = a.limit_seq
  WHERE a.place > 0
),
-- Reports above the limit with consecutive numbers are a run.
runs AS (
  SELECT
    *,
    report_no - row_number() OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY report_no
    ) AS run
  FROM judged
  WHERE used_per_s > limit_per_s * (1 + :tolerance)
),
ranked AS (
  SELECT
    *,
    min(reported_at) OVER whole_run AS first_at, max(reported_at) OVER whole_run AS last_at,
    count(*) OVER whole_run AS reports,
    row_number() OVER (
      PARTITION BY broker, resource_group, dimension, run
      ORDER BY used_per_s - limit_per_s DESC, report_no
    ) AS place
  FROM runs
  WINDOW whole_run AS (PARTITION BY broker, resource_group, dimension, run)
)
SELECT
  broker, resource_group, dimension, first_at, last_at, reports, limit_per_s,
  used_per_s AS worst_used_per_s,
  limit_reason(
    ended_because, reason_code, reason_numbers, limit_in_force_per_s, demand_per_s, quota_per_s
  ) AS reason,
  enforced
FROM ranked
WHERE place = 1 AND reports >= :reports
ORDER BY first_at, broker, resource_group, dimension
