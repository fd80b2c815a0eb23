-- Which brokers wanted more and had less than their fair shares, and for how long?
--
-- A broker wants more while it throttles more than :tolerance of what it uses; one that does not
-- report what it throttles, while it uses :saturated_from of its limit or more. Its fair share is the part of the group's quota that it has by weight, among all
-- brokers with a limit; a fair law gives a broker that wants more at least that. Left out are groups
-- with floors or priorities of brokers, and limits that a ceiling cuts. Weights are those of now.
-- One row per run of at least :rounds reports.
-- :rounds = 10  fewest reports in a row
-- :tolerance = 0.05  fraction of its fair share that a limit may be short of it
-- :saturated_from = 0.95  fraction of its limit; a broker that uses as much wants more
-- violations: every row
WITH weighed AS (
  SELECT
    l.broker, l.resource_group, l.dimension, l.epoch, l.seq, l.round_at, l.limit_per_s, l.ended,
    l.enforced, l.quota_per_s, l.reason_code,
    CASE WHEN l.ended THEN 0 ELSE coalesce(own.weight, everyone.weight, 1) END AS weight,
    favours.resource_group IS NOT NULL AS favours
  FROM limit_values AS l
  LEFT JOIN broker_terms AS own ON own.resource_group = l.resource_group AND own.broker = l.broker
  LEFT JOIN broker_terms AS everyone
    ON everyone.resource_group = l.resource_group AND everyone.broker = '*'
  LEFT JOIN (SELECT DISTINCT resource_group FROM broker_terms WHERE favours) AS favours
    ON favours.resource_group = l.resource_group
),
events AS (
  SELECT
    broker, resource_group, dimension, unix_millis(round_at) AS at_ms,
    limit_per_s, ended, enforced AND NOT favours AS enforced, quota_per_s, reason_code,
    epoch AS limit_epoch, seq AS limit_seq,
    weight - lag(weight, 1, 0) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq
    ) AS weight_change,
    CAST(NULL AS DOUBLE) AS used_per_s, CAST(NULL AS DOUBLE) AS throttled_per_s
  FROM weighed
  UNION ALL
  SELECT
    broker, resource_group, dimension, unix_millis(reported_at),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, used_per_s, throttled_per_s
  FROM usage_values
),
as_of AS (
  SELECT
    broker, resource_group, dimension, at_ms, used_per_s, throttled_per_s,
    last_value(limit_per_s) IGNORE NULLS OVER of_broker AS limit_per_s,
    last_value(enforced) IGNORE NULLS OVER of_broker AS enforced,
    last_value(ended) IGNORE NULLS OVER of_broker AS ended,
    last_value(reason_code) IGNORE NULLS OVER of_broker AS reason_code,
    last_value(limit_epoch) IGNORE NULLS OVER of_broker AS limit_epoch,
    last_value(limit_seq) IGNORE NULLS OVER of_broker AS limit_seq,
    last_value(weight_of_broker) IGNORE NULLS OVER of_broker AS weight,
    last_value(quota_per_s) IGNORE NULLS OVER of_group AS quota_per_s,
    sum(weight_change) OVER of_group AS weights
  FROM (
    SELECT
      *,
      sum(weight_change) OVER (
        PARTITION BY broker, resource_group, dimension ORDER BY at_ms
        RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS weight_of_broker
    FROM events
  ) AS with_weight
  WINDOW
    of_broker AS (
      PARTITION BY broker, resource_group, dimension ORDER BY at_ms
      RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ),
    of_group AS (
      PARTITION BY resource_group, dimension ORDER BY at_ms
      RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
judged AS (
  SELECT
    *, quota_per_s * weight / nullif(weights, 0) AS fair_per_s,
    coalesce(
      enforced AND NOT ended
      AND coalesce(reason_code, 0) <> 14  -- laws.reason.Reason: a ceiling
      AND limit_per_s < (1 - :tolerance) * quota_per_s * weight / nullif(weights, 0)
      AND CASE
        WHEN throttled_per_s IS NULL
          THEN used_per_s > 0 AND used_per_s >= :saturated_from * limit_per_s
        ELSE throttled_per_s > :tolerance * used_per_s
      END,
      false
    ) AS starves
  FROM as_of
  WHERE used_per_s IS NOT NULL AND timestamp_millis(at_ms) >= :since
),
runs AS (
  SELECT
    *,
    count_if(NOT starves) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY at_ms
    ) AS run
  FROM judged
),
found AS (
  SELECT
    broker, resource_group, dimension, min(at_ms) AS first_ms, max(at_ms) AS last_ms,
    count(*) AS reports, min(limit_per_s) AS lowest_limit_per_s,
    max_by(fair_per_s, at_ms) AS fair_share_per_s,
    max(throttled_per_s) AS most_throttled_per_s,
    max_by(limit_epoch, at_ms) AS limit_epoch, max_by(limit_seq, at_ms) AS limit_seq
  FROM runs
  WHERE starves
  GROUP BY broker, resource_group, dimension, run
  HAVING count(*) >= :rounds
)
SELECT
  f.broker, f.resource_group, f.dimension, timestamp_millis(f.first_ms) AS first_at,
  timestamp_millis(f.last_ms) AS last_at, f.reports, f.lowest_limit_per_s, f.fair_share_per_s,
  f.most_throttled_per_s, l.reason
FROM found AS f
LEFT JOIN limit_values AS l
  ON l.broker = f.broker AND l.resource_group = f.resource_group AND l.dimension = f.dimension
  AND l.epoch = f.limit_epoch AND l.seq = f.limit_seq
ORDER BY first_at, f.broker, f.resource_group, f.dimension
