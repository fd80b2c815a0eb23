-- Which groups used more than their quotas without being limited?
--
-- The use of all brokers, of a group and of all groups below it, is compared with the quota
-- whenever a report changed it, while the group's mode was soft or shadow, or its
-- enforcement_percent below 100. excess: messages, bytes, partitions or milliseconds above the quota. One row per
-- unbroken run; until_at is empty while it lasts.
-- :tolerance = 0.05  fraction of the quota by which the use may exceed it
WITH soft_times AS (
  SELECT
    resource_group, dimension, version, unix_millis(changed_at) AS at_ms,
    -- Infinity: no quota, or all of it is enforced.
    CASE WHEN mode <> 'hard' OR enforcement_percent < 100
      THEN coalesce(to_per_s, CAST('Infinity' AS DOUBLE)) ELSE CAST('Infinity' AS DOUBLE) END
      AS quota_per_s,
    mode, enforcement_percent
  FROM quota_changes
),
soft_groups AS (
  SELECT DISTINCT s.resource_group AS ancestor, s.dimension, t.resource_group
  FROM soft_times AS s
  JOIN group_tree AS t ON t.ancestor = s.resource_group
  WHERE s.quota_per_s < CAST('Infinity' AS DOUBLE)
),
reports AS (
  SELECT
    u.broker, u.resource_group, u.dimension, u.reported_at AS instant, u.epoch, u.seq, u.used_per_s
  FROM usage_values AS u
  JOIN (SELECT DISTINCT resource_group, dimension FROM soft_groups) AS g
    ON g.resource_group = u.resource_group AND g.dimension = u.dimension
  UNION ALL
  -- A broker that no longer has the group uses nothing of it.
  SELECT broker, resource_group, dimension, round_at, epoch, seq, 0 FROM limit_values WHERE ended
),
used AS (
  SELECT
    resource_group, dimension, unix_millis(instant) AS at_ms,
    used_per_s - lag(used_per_s, 1, 0) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY instant, epoch, seq
    ) AS added
  FROM reports
),
moments AS (
  SELECT
    g.ancestor AS resource_group, u.dimension, u.at_ms, u.added, CAST(NULL AS BIGINT) AS version,
    CAST(NULL AS DOUBLE) AS quota_per_s, CAST(NULL AS STRING) AS mode,
    CAST(NULL AS DOUBLE) AS enforcement_percent
  FROM used AS u
  JOIN soft_groups AS g ON g.resource_group = u.resource_group AND g.dimension = u.dimension
  UNION ALL
  SELECT
    resource_group, dimension, at_ms, 0, version, quota_per_s, mode, enforcement_percent
  FROM soft_times
),
at_each AS (
  SELECT
    resource_group, dimension, at_ms, sum(added) AS added, max(version) AS version,
    max_by(quota_per_s, version) AS quota_per_s, max_by(mode, version) AS mode,
    max_by(enforcement_percent, version) AS enforcement_percent
  FROM moments
  GROUP BY resource_group, dimension, at_ms
),
sums AS (
  SELECT
    resource_group, dimension, at_ms, lead(at_ms) OVER so_far AS next_ms,
    sum(added) OVER so_far AS used_per_s,
    last_value(quota_per_s) IGNORE NULLS OVER so_far AS quota_per_s,
    last_value(mode) IGNORE NULLS OVER so_far AS mode,
    last_value(enforcement_percent) IGNORE NULLS OVER so_far AS enforcement_percent
  FROM at_each
  WINDOW so_far AS (PARTITION BY resource_group, dimension ORDER BY at_ms)
),
judged AS (
  SELECT *, coalesce(used_per_s > quota_per_s * (1 + :tolerance), false) AS is_over
  FROM sums
  WHERE timestamp_millis(at_ms) >= :since
),
runs AS (
  SELECT
    *, count_if(NOT is_over) OVER (PARTITION BY resource_group, dimension ORDER BY at_ms) AS run
  FROM judged
)
SELECT
  resource_group, dimension, max_by(mode, at_ms) AS mode,
  max_by(enforcement_percent, at_ms) AS enforcement_percent,
  timestamp_millis(min(at_ms)) AS first_at,
  CASE WHEN bool_or(next_ms IS NULL) THEN NULL ELSE timestamp_millis(max(next_ms)) END AS until_at,
  max_by(quota_per_s, used_per_s - quota_per_s) AS quota_per_s,
  max_by(used_per_s, used_per_s - quota_per_s) AS most_used_per_s,
  sum((used_per_s - quota_per_s) * (coalesce(next_ms, at_ms) - at_ms) / 1000) AS excess
FROM runs
WHERE is_over
GROUP BY resource_group, dimension, run
ORDER BY first_at, resource_group, dimension
