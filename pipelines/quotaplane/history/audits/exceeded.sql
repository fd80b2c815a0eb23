-- Who exceeded its limit, and when?
--
-- Each report is compared with the highest limit in force within :settle_s seconds before it was
-- published, as usage is measured over a window and a new limit takes time to arrive. A limit is in
-- force until the next one. One row per unbroken run of reports above it. Where enforced is false
-- (a soft or shadow group, or a partial roll-out), the broker was not limited but would have been.
-- :tolerance = 0.05  fraction of the limit by which usage may exceed it
-- :settle_s = 5  seconds for which the previous limit still counts
WITH reports AS (
  SELECT
    broker, resource_group, dimension, coalesce(published_at, round_at) AS round_at,
    -- A rate that did not change is not reported again.
    last_value(rate, true) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY coalesce(published_at, round_at), epoch, seq
    ) AS used_per_s
  FROM usage
  LATERAL VIEW by_dimension('{}_per_s') AS dimension, rate
  WHERE date >= date_sub(to_date(timestamp(:since)), 1)
),
events AS (
  SELECT
    broker, resource_group, dimension, round_at, used_per_s,
    NULL AS limit_per_s, NULL AS highest, NULL AS reason, NULL AS enforced
  FROM reports
  UNION ALL
  SELECT
    broker, resource_group, dimension, round_at, NULL, limit_per_s,
    greatest(limit_per_s, lag(limit_per_s, 1, DOUBLE('Infinity')) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq
    )),
    coalesce(reason, ''), enforced
  FROM limit_values
),
as_of AS (
  SELECT
    broker, resource_group, dimension, round_at, used_per_s,
    last_value(reason, true) OVER so_far AS reason,
    last_value(enforced, true) OVER so_far AS enforced,
    greatest(
      last_value(limit_per_s, true) OVER so_far,
      max(highest) OVER (
        -- A window frame takes no parameter, so time is in units of :settle_s (at least 1 ns).
        PARTITION BY broker, resource_group, dimension
        ORDER BY unix_millis(round_at) / greatest(:settle_s * 1000, 1e-6D)
        RANGE BETWEEN 1D PRECEDING AND CURRENT ROW
      )
    ) AS limit_per_s
  FROM events
  WINDOW so_far AS (
    PARTITION BY broker, resource_group, dimension ORDER BY unix_millis(round_at)
    RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
judged AS (
  SELECT *, coalesce(used_per_s > limit_per_s * (1 + :tolerance), false) AS over
  FROM as_of
  WHERE used_per_s IS NOT NULL AND round_at >= timestamp(:since)
),
runs AS (
  SELECT *, count_if(NOT over) OVER (PARTITION BY broker, resource_group, dimension ORDER BY round_at) AS run
  FROM judged
)
SELECT
  broker, resource_group, dimension,
  min(round_at) AS first_at, max(round_at) AS last_at, count(*) AS reports,
  max_by(limit_per_s, used_per_s - limit_per_s) AS limit_per_s,
  max_by(used_per_s, used_per_s - limit_per_s) AS worst_used_per_s,
  max_by(reason, used_per_s - limit_per_s) AS reason,
  max_by(enforced, used_per_s - limit_per_s) AS enforced
FROM runs
WHERE over
GROUP BY broker, resource_group, dimension, run
ORDER BY first_at, broker, resource_group, dimension
