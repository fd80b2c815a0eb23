-- Which groups used most, of each dimension?
--
-- used: messages, bytes, partitions or milliseconds. throttled: what brokers refused or delayed; empty: no broker
-- reports that. For whole days the view daily_values is faster.
-- :top = 10  so many groups of each dimension
WITH totals AS (
  SELECT
    dimension, resource_group, sum(used) AS used, sum(throttled) AS throttled,
    count(DISTINCT broker) AS brokers, max(used_per_s) AS most_of_a_broker_per_s
  FROM usage_amounts
  WHERE reported_at >= :since AND reported_at <= :until
  GROUP BY dimension, resource_group
),
ranked AS (
  SELECT
    *, row_number() OVER (PARTITION BY dimension ORDER BY used DESC, resource_group) AS place,
    100 * used / nullif(sum(used) OVER (PARTITION BY dimension), 0) AS percent
  FROM totals
  WHERE used > 0
)
SELECT
  dimension, place, resource_group, used, percent, throttled, brokers, most_of_a_broker_per_s
FROM ranked
WHERE place <= :top
ORDER BY dimension, place
