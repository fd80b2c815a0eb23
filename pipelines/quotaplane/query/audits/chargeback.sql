-- How much did each tenant use on each day?
--
-- Of the days that are over and that `quotaplane maintain` has made rows of in usage_daily. The
-- tenant is the part of a group's name before the first "/" or "::". used and throttled are
-- messages, bytes, partitions or milliseconds; throttled is empty if no broker reports it. covered: the part of
-- the day, 0 to 1, for which the reports of the tenant's brokers are there: of the broker with
-- the least, which least_covered names (empty: all have the whole day), and the mean. What is
-- missing, the audit coverage has. by_counters: true: used is exact, from counters of the brokers.
WITH days AS (
  SELECT *, min(covered) OVER (PARTITION BY date, tenant, dimension) AS least
  FROM daily_values
  WHERE date >= CAST(:since AS DATE) AND date <= CAST(:until AS DATE) AND used > 0
)
SELECT
  date, tenant, dimension, sum(used) AS used, sum(throttled) AS throttled,
  count(DISTINCT resource_group) AS resource_groups, min(least) AS covered,
  min(broker) FILTER (WHERE covered = least AND covered < 1) AS least_covered,
  avg(covered) AS mean_covered, bool_and(by_counters) AS by_counters
FROM days
GROUP BY date, tenant, dimension
ORDER BY date, tenant, dimension
