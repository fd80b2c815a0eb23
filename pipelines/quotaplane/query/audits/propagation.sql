-- How long did it take until a quota change was in force everywhere?
--
-- Time from the change's commit until the limits of all the group's brokers added up to the new
-- quota (or all were unlimited, or all limits of a deleted group had ended). The quota of a group
-- that is soft or shadow and has groups below it counts as none. state is "in force",
-- "superseded" (the next change came first), "below" (the limits add up to less so far: raises that
-- still wait for room, ceilings, or a smaller quota of an ancestor), "pending", or "no brokers".
-- late: for longer than :within_s the limits allowed more than the new quota; if nothing changed
-- since then, by :until. If the group had no limits at the change, since it had the first one.
-- :over = 0  limits.over: fraction of the quota by which limits may exceed it (--conf: as there)
-- :tolerance = 0.01  fraction of the quota by which the sum may differ from it
-- :within_s = 60  seconds in which the limits should allow no more than a new quota
-- violations: rows where late
WITH spans AS (
  SELECT
    c.*,
    CASE WHEN c.mode = 'hard' OR above.ancestor IS NULL THEN c.to_per_s END AS quota_per_s,
    lead(c.changed_at) OVER (
      PARTITION BY c.resource_group, c.dimension ORDER BY c.version
    ) AS next_at
  FROM quota_changes AS c
  LEFT JOIN (
    SELECT DISTINCT ancestor FROM group_tree WHERE ancestor <> resource_group
  ) AS above ON above.ancestor = c.resource_group
  WHERE c.from_per_s IS DISTINCT FROM c.to_per_s
),
-- What each limit adds to its group's sum; a running total then gives the sum.
finite AS (
  SELECT
    broker, resource_group, dimension, epoch, seq, round_at,
    CASE WHEN ended THEN 0 ELSE 1 END AS has,
    CASE WHEN limit_per_s < CAST('Infinity' AS DOUBLE) THEN 1 ELSE 0 END AS limited,
    CASE WHEN limit_per_s < CAST('Infinity' AS DOUBLE) THEN limit_per_s ELSE 0 END AS limit_per_s
  FROM limit_values
),
steps AS (
  SELECT
    resource_group, dimension, epoch, seq, round_at,
    has - lag(has, 1, 0) OVER earlier AS came,
    limited - lag(limited, 1, 0) OVER earlier AS came_limited,
    limit_per_s - lag(limit_per_s, 1, 0) OVER earlier AS added
  FROM finite
  WINDOW earlier AS (PARTITION BY broker, resource_group, dimension ORDER BY epoch, seq)
),
rounds_of_group AS (
  SELECT
    resource_group, dimension, epoch, seq, min(round_at) AS round_at, sum(added) AS added,
    sum(came) AS came, sum(came_limited) AS came_limited
  FROM steps
  GROUP BY resource_group, dimension, epoch, seq
),
moments AS (
  SELECT resource_group, dimension, round_at, added, came, came_limited, round_at AS limit_at
  FROM rounds_of_group
  UNION ALL
  -- What the limits added up to when the quota changed.
  SELECT resource_group, dimension, changed_at, 0, 0, 0, NULL FROM spans
),
totals AS (
  SELECT
    resource_group, dimension, round_at, limit_at, sum(added) OVER so_far AS total,
    sum(came) OVER so_far AS brokers, sum(came_limited) OVER so_far AS limited
  FROM moments
  WINDOW so_far AS (
    PARTITION BY resource_group, dimension ORDER BY unix_millis(round_at)
    RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
followed AS (
  SELECT
    c.resource_group, c.dimension, c.version, c.changed_at, c.changed_by, c.from_per_s, c.to_per_s,
    c.next_at, t.round_at, t.limit_at, t.brokers,
    t.brokers > 0 AND NOT c.deleted
      AND (c.quota_per_s IS NULL OR t.limited = t.brokers AND t.total < c.quota_per_s) AS is_below,
    CASE
      WHEN c.deleted THEN t.brokers = 0 AND t.limit_at IS NOT NULL
      WHEN t.brokers = 0 THEN false
      WHEN c.quota_per_s IS NULL THEN t.limited = 0
      ELSE t.limited = t.brokers
        AND t.total >= c.quota_per_s * (1 - :tolerance) - 1e-9
        AND t.total <= c.quota_per_s * (1 + :tolerance + :over) + 1e-9
    END AS is_done
  FROM spans AS c
  LEFT JOIN totals AS t
    ON t.resource_group = c.resource_group AND t.dimension = c.dimension
    AND t.round_at >= c.changed_at AND (c.next_at IS NULL OR t.round_at < c.next_at)
),
answers AS (
  SELECT
    resource_group, dimension, version, changed_at, changed_by, from_per_s, to_per_s, next_at,
    min(limit_at) AS first_limit_at,
    min(round_at) FILTER (WHERE brokers > 0) AS limited_from_at, min(round_at) FILTER (WHERE is_done) AS in_force_at,
    min(round_at) FILTER (WHERE is_done OR is_below) AS settled_at,
    min_by(brokers, round_at) FILTER (WHERE is_done) AS brokers, max(brokers) AS most,
    max_by(is_below, round_at) AS is_below
  FROM followed
  GROUP BY
    resource_group, dimension, version, changed_at, changed_by, from_per_s, to_per_s, next_at
),
timed AS (
  SELECT
    *,
    CASE
      WHEN in_force_at IS NOT NULL THEN 'in force'
      WHEN next_at IS NOT NULL THEN 'superseded'
      WHEN is_below THEN 'below'
      WHEN most > 0 THEN 'pending'
      ELSE 'no brokers'
    END AS state,
    (unix_millis(in_force_at) - unix_millis(changed_at)) / 1000 AS seconds,
    (
      unix_millis(coalesce(settled_at, next_at, :until))
      - unix_millis(coalesce(limited_from_at, changed_at))
    ) / 1000 AS settled_s
  FROM answers
)
SELECT
  resource_group, dimension, changed_at, changed_by, from_per_s, to_per_s, state,
  CAST(brokers AS BIGINT) AS brokers, first_limit_at, in_force_at, seconds,
  most > 0 AND settled_s > :within_s AS late
FROM timed
WHERE changed_at >= :since
ORDER BY changed_at, resource_group, dimension
