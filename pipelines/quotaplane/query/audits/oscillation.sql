-- Which limits go up and down again and again?
--
-- A swing is a move of a limit from a lowest point to the next highest one, or back, by at least
-- :swing of the higher value and :least of an equal share of the quota, within :within_s. One row
-- per unbroken run of at least :swings of them. swings_of_demand: in so many of them the law only
-- followed what it was given: of the broker's demand, the others' or the quota at least half as much
-- more or less, or a demand that became unlimited or finite. With `limits.over`, all swings of a
-- broker that has what it wants are among them. unexplained: at least :swings are left.
-- :swing = 0.2  fraction of the higher limit; smaller moves do not count
-- :least = 0.05  fraction of an equal share; smaller moves do not count
-- :over = 0  limits.over: fraction of the quota by which limits may exceed it (--conf: as there)
-- :swings = 10  fewest swings in a row that count
-- :within_s = 120  longest time of a swing, in seconds
-- violations: rows where unexplained
WITH demands AS (
  SELECT
    broker, resource_group, dimension, epoch, seq, round_at, limit_per_s,
    NOT ended AND limit_per_s < CAST('Infinity' AS DOUBLE) AS is_finite,
    coalesce(quota_per_s, 0) AS quota_per_s, CASE WHEN ended THEN 0 ELSE 1 END AS brokers,
    coalesce(demand_per_s <= limit_per_s * (1 + 1e-6), false) AS is_satisfied,
    CASE WHEN ended THEN 0 ELSE coalesce(demand_per_s, 0) END AS demand_per_s,
    CASE WHEN ended OR demand_per_s IS NOT NULL THEN 0 ELSE 1 END AS unlimited
  FROM limit_values
),
demand_steps AS (
  SELECT
    resource_group, dimension, epoch, seq,
    demand_per_s - lag(demand_per_s, 1, 0) OVER in_order AS added,
    unlimited - lag(unlimited, 1, 0) OVER in_order AS added_unlimited,
    brokers - lag(brokers, 1, 0) OVER in_order AS added_brokers
  FROM demands
  WINDOW in_order AS (PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq)
),
-- The demand of all brokers of a group.
totals AS (
  SELECT
    resource_group, dimension, epoch, seq,
    sum(sum(added)) OVER so_far AS demand_per_s,
    sum(sum(added_unlimited)) OVER so_far AS unlimited,
    sum(sum(added_brokers)) OVER so_far AS brokers
  FROM demand_steps
  GROUP BY resource_group, dimension, epoch, seq
  WINDOW so_far AS (PARTITION BY resource_group, dimension ORDER BY epoch, seq)
),
finite AS (
  SELECT
    d.broker, d.resource_group, d.dimension, d.epoch, d.seq, d.round_at, d.limit_per_s,
    d.is_satisfied, d.quota_per_s / nullif(t.brokers, 0) AS share_per_s,
    d.unlimited, t.unlimited - d.unlimited AS others_unlimited,
    -- What of it raises the limit.
    d.demand_per_s - (t.demand_per_s - d.demand_per_s) + d.quota_per_s AS given_per_s
  FROM demands AS d
  JOIN totals AS t
    ON t.resource_group = d.resource_group AND t.dimension = d.dimension
    AND t.epoch = d.epoch AND t.seq = d.seq
  WHERE d.is_finite
),
-- A row that only another dimension changed is no move.
changed AS (
  SELECT * FROM (
    SELECT *, lag(limit_per_s) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq
    ) AS previous_per_s
    FROM finite
  ) AS compared
  WHERE limit_per_s IS DISTINCT FROM previous_per_s
),
moves AS (
  SELECT
    *,
    sign(limit_per_s - (lag(limit_per_s) OVER in_order)) AS before,
    sign((lead(limit_per_s) OVER in_order) - limit_per_s) AS after
  FROM changed
  WINDOW in_order AS (PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq)
),
-- Where a limit turns, and its first and last values.
turns AS (
  SELECT * FROM moves
  WHERE before IS NULL OR after IS NULL OR before * after < 0
),
swings AS (
  SELECT
    broker, resource_group, dimension, epoch, seq, round_at, limit_per_s,
    lag(round_at) OVER in_order AS begun_at,
    lag(limit_per_s) OVER in_order AS from_per_s,
    sign(limit_per_s - (lag(limit_per_s) OVER in_order)) AS direction,
    given_per_s - lag(given_per_s) OVER in_order AS given_change_per_s,
    unlimited <> lag(unlimited) OVER in_order
      OR others_unlimited <> lag(others_unlimited) OVER in_order AS is_other_kind,
    is_satisfied AND lag(is_satisfied) OVER in_order AS is_satisfied,
    greatest(share_per_s, lag(share_per_s) OVER in_order) AS share_per_s
  FROM turns
  WINDOW in_order AS (PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq)
),
judged AS (
  SELECT
    *,
    coalesce(
      abs(limit_per_s - from_per_s) >= :swing * greatest(limit_per_s, from_per_s)
        AND abs(limit_per_s - from_per_s) >= coalesce(:least * share_per_s, 0)
        AND direction <> 0
        AND unix_millis(round_at) - unix_millis(begun_at) <= :within_s * 1000,
      false
    ) AS counts,
    is_other_kind OR :over > 0 AND is_satisfied
      OR direction * given_change_per_s >= 0.5 * abs(limit_per_s - from_per_s) AS follows
  FROM swings
),
runs AS (
  SELECT
    *,
    count_if(NOT counts) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq
    ) AS run
  FROM judged
)
SELECT
  broker, resource_group, dimension, min(begun_at) AS first_at, max(round_at) AS last_at,
  count(*) AS swings, min(least(from_per_s, limit_per_s)) AS lowest_per_s,
  max(greatest(from_per_s, limit_per_s)) AS highest_per_s,
  count_if(follows) AS swings_of_demand, count_if(NOT follows) >= :swings AS unexplained
FROM runs
WHERE counts AND round_at >= :since
GROUP BY broker, resource_group, dimension, run
HAVING count(*) >= :swings
ORDER BY first_at, broker, resource_group, dimension
