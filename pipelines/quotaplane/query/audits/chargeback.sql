-- How much did each tenant use on each day?
--
-- The tenant is the part of a group's name before the first "/" or "::". used and throttled are
-- messages, bytes or partitions; throttled is empty if no broker reports it.
WITH amounts AS (
  SELECT
    CAST(reported_at AS DATE) AS day, resource_group, dimension, reported_at,
    used_per_s, throttled_per_s, window_ms / 1000 AS window_s
  FROM usage_values
)
SELECT
  day, regexp_extract(resource_group, '^([^/:]*)', 1) AS tenant, dimension,
  sum(used_per_s * window_s) AS used, sum(throttled_per_s * window_s) AS throttled,
  count(DISTINCT resource_group) AS resource_groups
FROM amounts
WHERE reported_at >= :since AND reported_at <= :until
GROUP BY day, regexp_extract(resource_group, '^([^/:]*)', 1), dimension
HAVING sum(used_per_s * window_s) > 0
ORDER BY day, tenant, dimension
