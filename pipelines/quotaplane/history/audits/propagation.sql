-- How long until a quota change was in force everywhere?
--
-- Time from the change's commit until the limits of all the group's brokers added up to the new
-- quota (or all were unlimited, or all limits of a deleted group had ended). state is "in force",
-- "superseded" (the next change came first), "below" (the limits add up to less so far: raises that
-- still wait for room, ceilings, or a smaller quota of an ancestor), "pending", or "no brokers".
-- :tolerance = 0.01  fraction of the quota by which the sum may differ from it
WITH sides AS (
  SELECT
    resource_group, version, changed_at, changed_by, dimension,
    change IN ('update_preimage', 'delete') AS old, change = 'delete' AS deleted, quota
  FROM resource_group_changes
  LATERAL VIEW by_dimension('{}_per_s') AS dimension, quota
),
changes AS (
  SELECT
    resource_group, dimension, version, first(changed_at) AS changed_at, first(changed_by) AS changed_by,
    max(quota) FILTER (WHERE old) AS from_per_s, max(quota) FILTER (WHERE NOT old) AS to_per_s,
    bool_or(deleted) AS deleted
  FROM sides
  GROUP BY resource_group, dimension, version
),
spans AS (
  SELECT *, lead(changed_at) OVER (PARTITION BY resource_group, dimension ORDER BY version) AS next_at
  FROM changes
  WHERE from_per_s IS DISTINCT FROM to_per_s
),
-- What each row of limits adds to its group's sum; a running total then gives the sum.
steps AS (
  SELECT
    resource_group, dimension, epoch, seq, round_at,
    NOT ended AS has, limit_per_s < DOUBLE('Infinity') AS limited,
    lag(NOT ended, 1, false) OVER before AS had,
    lag(limit_per_s < DOUBLE('Infinity'), 1, false) OVER before AS was_limited,
    if(limit_per_s < DOUBLE('Infinity'), limit_per_s, 0) AS new,
    lag(if(limit_per_s < DOUBLE('Infinity'), limit_per_s, 0), 1, 0) OVER before AS previous
  FROM limit_values
  WINDOW before AS (PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq)
),
rounds_of_group AS (
  SELECT
    resource_group, dimension, epoch, seq, min(round_at) AS round_at, sum(new - previous) AS added,
    sum(int(has) - int(had)) AS came, sum(int(limited) - int(was_limited)) AS came_limited
  FROM steps
  GROUP BY resource_group, dimension, epoch, seq
),
totals AS (
  SELECT
    resource_group, dimension, round_at, sum(added) OVER so_far AS total, sum(came) OVER so_far AS brokers,
    sum(came_limited) OVER so_far AS limited
  FROM rounds_of_group
  WINDOW so_far AS (PARTITION BY resource_group, dimension ORDER BY epoch, seq)
),
followed AS (
  SELECT
    c.*, t.round_at, t.brokers,
    t.brokers > 0 AND t.limited = t.brokers
      AND NOT c.deleted AND (c.to_per_s IS NULL OR t.total < c.to_per_s) AS below,
    CASE
      WHEN c.deleted THEN t.brokers = 0
      WHEN t.brokers = 0 THEN false
      WHEN c.to_per_s IS NULL THEN t.limited = 0
      ELSE t.limited = t.brokers AND abs(t.total - c.to_per_s) <= :tolerance * c.to_per_s + 1e-9
    END AS done
  FROM spans AS c
  LEFT JOIN totals AS t
    ON t.resource_group = c.resource_group AND t.dimension = c.dimension AND t.round_at >= c.changed_at
    AND (c.next_at IS NULL OR t.round_at < c.next_at)
),
answers AS (
  SELECT
    resource_group, dimension, version, changed_at, changed_by, from_per_s, to_per_s, next_at,
    min(round_at) AS first_at, min(round_at) FILTER (WHERE done) AS in_force_at,
    min_by(brokers, round_at) FILTER (WHERE done) AS brokers, max(brokers) AS most,
    max_by(below, round_at) AS below
  FROM followed
  GROUP BY ALL
)
SELECT
  resource_group, dimension, changed_at, changed_by, from_per_s, to_per_s,
  CASE
    WHEN in_force_at IS NOT NULL THEN 'in force'
    WHEN next_at IS NOT NULL THEN 'superseded'
    WHEN below THEN 'below'
    WHEN most > 0 THEN 'pending'
    ELSE 'no brokers'
  END AS state,
  brokers, first_at AS first_limit_at, in_force_at,
  (unix_millis(in_force_at) - unix_millis(changed_at)) / 1000 AS seconds
FROM answers
WHERE changed_at >= timestamp(:since)
ORDER BY changed_at, resource_group, dimension
