-- Usage of whole days: a row for each dimension.
SELECT
  date, tenant, resource_group, broker, dimension, reports, covered, by_counters, used, throttled,
  peak_per_s
FROM usage_daily by_dimension(used: %, throttled: throttled_%, peak_per_s: peak_%_per_s)
WHERE used IS NOT NULL
