-- How much did each tenant use on each day?
--
-- Of the days that are over and that `quotaplane maintain` has made rows of in usage_daily. The
-- tenant is the part of a group's name before the first "/" or "::". used and throttled are
-- messages, bytes or partitions; throttled is empty if no broker reports it.
SELECT
  date, tenant, dimension, sum(used) AS used, sum(throttled) AS throttled,
  count(DISTINCT resource_group) AS resource_groups
FROM daily_values
WHERE date >= CAST(:since AS DATE) AND date <= CAST(:until AS DATE) AND used > 0
GROUP BY date, tenant, dimension
ORDER BY date, tenant, dimension
