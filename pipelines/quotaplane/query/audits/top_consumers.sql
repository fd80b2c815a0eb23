-- Which groups used most, of each dimension?
--
-- used: messages, bytes or partitions. A report counts for its window, or for the time since the
-- broker's previous report, at most :gap_s, if the window was not recorded. throttled: what brokers
-- refused or delayed; empty: no broker reports that.
-- :top = 10  so many groups of each dimension
-- :gap_s = 60  longest time in seconds for which a report without a window counts
WITH amounts AS (
  SELECT
    resource_group, dimension, broker, reported_at, used_per_s, throttled_per_s,
    coalesce(
      window_ms / 1000,
      least(
        (
          unix_millis(reported_at) - unix_millis(lag(reported_at) OVER (
            PARTITION BY broker, resource_group, dimension ORDER BY reported_at, epoch, seq
          ))
        ) / 1000,
        :gap_s
      )
    ) AS window_s
  FROM usage_values
),
totals AS (
  SELECT
    dimension, resource_group, sum(used_per_s * window_s) AS used,
    sum(throttled_per_s * window_s) AS throttled, count(DISTINCT broker) AS brokers,
    max(used_per_s) AS most_of_a_broker_per_s
  FROM amounts
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
