-- Which limits go up and down again and again?
--
-- A swing is a move of a limit from a lowest point to the next highest one, or back, by at least
-- :swing of the higher value, within :within_s. One row per unbroken run of at least :swings of
-- them. swings_of_demand: in so many of them the demand that the law was given went the same way, or
-- was not known: the law only followed it.
-- :swing = 0.2  fraction of the higher limit; smaller moves do not count
-- :swings = 10  fewest swings in a row that count
-- :within_s = 120  longest time of a swing, in seconds
-- violations: every row
WITH finite AS (
  SELECT broker, resource_group, dimension, epoch, seq, round_at, limit_per_s, demand_per_s
  FROM limit_values
  WHERE NOT ended AND limit_per_s < CAST('Infinity' AS DOUBLE)
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
    sign(demand_per_s - (lag(demand_per_s) OVER in_order)) AS of_demand
  FROM turns
  WINDOW in_order AS (PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq)
),
judged AS (
  SELECT
    *,
    coalesce(
      abs(limit_per_s - from_per_s) >= :swing * greatest(limit_per_s, from_per_s)
        AND direction <> 0
        AND unix_millis(round_at) - unix_millis(begun_at) <= :within_s * 1000,
      false
    ) AS counts
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
  count_if(coalesce(of_demand = direction, true)) AS swings_of_demand
FROM runs
WHERE counts AND round_at >= :since
GROUP BY broker, resource_group, dimension, run
HAVING count(*) >= :swings
ORDER BY first_at, broker, resource_group, dimension
