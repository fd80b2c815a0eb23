-- Which brokers wanted more and had less than their fair shares, and for how long?
--
-- A broker wants more while its demand is above its limit by more than :tolerance: what it uses and
-- throttles or, if it does not report what it throttles, the demand that the law was given. That one
-- counts while the broker uses :saturated_from of its limit or more; it is unlimited if nobody knows
-- how much the broker wants. A satisfied broker has little more than its demand, and uses most of
-- it. The fair share of a broker is the part of the group's quota that it has by weight, among all
-- brokers with a limit; a fair law gives a broker that wants more at least that. Left out are groups
-- with floors or priorities of brokers, and limits that a ceiling cuts. Limits of a group in which
-- limits wait for others (`strict`), that move in steps or were handed back, count after three
-- leases. Weights are those of now. One row per run of at least :rounds reports.
-- :rounds = 10  fewest reports in a row
-- :tolerance = 0.05  fraction by which a limit may be short of demand and fair share
-- :saturated_from = 0.95  fraction of its limit; a broker that uses as much wants more
-- violations: every row
WITH weighed AS (
  SELECT
    l.broker, l.resource_group, l.dimension, l.epoch, l.seq, unix_millis(l.round_at) AS at_ms,
    l.quota_per_s, coalesce(l.reason_code, 0) = 17 AS waits,  -- laws.reason.Reason: waiting
    CASE WHEN l.ended THEN 0 ELSE coalesce(own.weight, everyone.weight, 1) END AS weight
  FROM limit_values AS l
  LEFT JOIN broker_terms AS own ON own.resource_group = l.resource_group AND own.broker = l.broker
  LEFT JOIN broker_terms AS everyone
    ON everyone.resource_group = l.resource_group AND everyone.broker = '*'
),
steps AS (
  SELECT
    resource_group, dimension, at_ms, quota_per_s, waits,
    weight - lag(weight, 1, 0) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq
    ) AS weight_change
  FROM weighed
),
rounds_of_group AS (
  SELECT
    resource_group, dimension, at_ms, max(quota_per_s) AS quota_per_s, bool_or(waits) AS waits,
    sum(weight_change) AS weight_change
  FROM steps
  GROUP BY resource_group, dimension, at_ms
),
-- The quota per weight of each group, numbered: the highest number so far is of the newest one.
shares AS (
  SELECT
    resource_group, dimension, at_ms, waits,
    row_number() OVER so_far AS share_no,
    last_value(quota_per_s) IGNORE NULLS OVER so_far
      / nullif(sum(weight_change) OVER so_far, 0) AS share_per_s
  FROM rounds_of_group
  WINDOW so_far AS (
    PARTITION BY resource_group, dimension ORDER BY at_ms
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
unsatisfied AS (
  SELECT
    u.broker, u.resource_group, u.dimension, u.report_no, u.reported_at, u.limit_per_s,
    u.throttled_per_s, u.reason_code, u.reason_numbers, u.demand_per_s, u.quota_per_s,
    most.waits OR coalesce(u.reason_code, 0) IN (16, 18) AS is_late,  -- handed back, a step
    coalesce(own.weight, everyone.weight, 1) AS weight
  FROM usage_and_limits AS u
  -- Few are left after this.
  JOIN (
    SELECT
      resource_group, dimension, max(share_per_s) AS share_per_s, bool_or(waits) AS waits
    FROM shares
    GROUP BY resource_group, dimension
  ) AS most ON most.resource_group = u.resource_group AND most.dimension = u.dimension
  LEFT JOIN broker_terms AS own ON own.resource_group = u.resource_group AND own.broker = u.broker
  LEFT JOIN broker_terms AS everyone
    ON everyone.resource_group = u.resource_group AND everyone.broker = '*'
  LEFT JOIN (SELECT DISTINCT resource_group FROM broker_terms WHERE favours) AS f
    ON f.resource_group = u.resource_group
  WHERE u.counted AND u.reported_at >= :since AND u.enforced AND NOT u.ended
    AND f.resource_group IS NULL
    AND coalesce(u.reason_code, 0) <> 14  -- laws.reason.Reason: a ceiling
    AND u.limit_per_s
      < (1 - :tolerance) * most.share_per_s * coalesce(own.weight, everyone.weight, 1)
    AND CASE
      WHEN u.throttled_per_s IS NULL
        THEN u.used_per_s > 0 AND u.used_per_s >= :saturated_from * u.limit_per_s
          AND coalesce(u.demand_per_s > (1 + :tolerance) * u.limit_per_s, true)
      ELSE u.used_per_s + u.throttled_per_s > (1 + :tolerance) * u.limit_per_s
    END
),
moments AS (
  SELECT *, unix_millis(reported_at) AS at_ms, CAST(NULL AS BIGINT) AS share_no FROM unsatisfied
  UNION ALL
  SELECT
    NULL, resource_group, dimension, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    at_ms, share_no
  FROM shares
),
placed AS (
  SELECT
    broker, resource_group, dimension, report_no, reported_at, limit_per_s, throttled_per_s,
    reason_code, reason_numbers, demand_per_s, quota_per_s, is_late, weight,
    max(share_no) OVER (
      -- Shares first: they have no broker.
      PARTITION BY resource_group, dimension ORDER BY at_ms, broker NULLS FIRST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS share_no
  FROM moments
),
judged AS (
  SELECT p.*, s.share_per_s * p.weight AS fair_per_s
  FROM placed AS p
  JOIN shares AS s
    ON s.resource_group = p.resource_group AND s.dimension = p.dimension
    AND s.share_no = p.share_no
  WHERE p.broker IS NOT NULL AND p.limit_per_s < (1 - :tolerance) * s.share_per_s * p.weight
),
-- Reports with consecutive numbers are a run.
runs AS (
  SELECT
    *,
    report_no - row_number() OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY report_no
    ) AS run
  FROM judged
),
ranked AS (
  SELECT
    *, max(reported_at) OVER whole_run AS last_at,
    count(*) OVER whole_run AS reports,
    count_if(
      NOT is_late OR unix_millis(reported_at) - unix_millis(first_at) > 3 * (SELECT max(lease_ms) FROM limits)
    ) OVER whole_run AS that_count, min(limit_per_s) OVER whole_run AS lowest_limit_per_s,
    max(throttled_per_s) OVER whole_run AS most_throttled_per_s,
    row_number() OVER (
      PARTITION BY broker, resource_group, dimension, run ORDER BY report_no DESC
    ) AS place
  FROM (
    SELECT
      *, min(reported_at) OVER (
        PARTITION BY broker, resource_group, dimension, run
      ) AS first_at
    FROM runs
  ) AS begun
  WINDOW whole_run AS (PARTITION BY broker, resource_group, dimension, run)
)
SELECT
  broker, resource_group, dimension, first_at, last_at, reports, lowest_limit_per_s,
  fair_per_s AS fair_share_per_s, most_throttled_per_s,
  reason_text(reason_code, reason_numbers, limit_per_s, demand_per_s, quota_per_s) AS reason
FROM ranked
WHERE place = 1 AND that_count >= :rounds
ORDER BY first_at, broker, resource_group, dimension
