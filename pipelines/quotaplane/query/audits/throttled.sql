-- Who was throttled, how much, and why?
--
-- One row per broker and group. throttled: messages, bytes, partitions or milliseconds that the broker refused or
-- delayed; empty: it does not report that, and is listed if it used :saturated_from of an enforced
-- limit, or more. reports: so many of its reports say so. limit_per_s and reason: of the limit in
-- force in the worst report; empty: none was known.
-- :saturated_from = 0.95  fraction of its limit; a broker that uses as much is at its limit
WITH ranked AS (
  SELECT
    *,
    row_number() OVER (
      PARTITION BY broker, resource_group, dimension
      ORDER BY coalesce(throttled_per_s, 0) DESC, used_per_s / nullif(limit_per_s, 0) DESC, report_no
    ) AS place,
    min(reported_at) OVER whole AS first_at, max(reported_at) OVER whole AS last_at,
    sum(throttled_per_s * coalesce(window_ms, 0) / 1000) OVER whole AS throttled,
    count(*) OVER whole AS reports
  FROM usage_and_limits
  WHERE reported_at >= :since AND reported_at <= :until AND CASE
    WHEN throttled_per_s IS NULL
      THEN enforced AND NOT ended AND used_per_s > 0 AND used_per_s >= :saturated_from * limit_per_s
    ELSE throttled_per_s > 0
  END
  WINDOW whole AS (PARTITION BY broker, resource_group, dimension)
)
SELECT
  broker, resource_group, dimension, first_at, last_at, throttled,
  throttled_per_s AS most_throttled_per_s, reports,
  CASE WHEN limit_per_s < CAST('Infinity' AS DOUBLE) THEN limit_per_s END AS limit_per_s,
  limit_reason(
    ended_because, reason_code, reason_numbers, limit_per_s, demand_per_s, quota_per_s
  ) AS reason
FROM ranked
WHERE place = 1
ORDER BY throttled DESC, broker, resource_group, dimension
