-- When did the limits in force add up to more than a quota, by how much, and for how long?
--
-- The limits of a group and of all groups below it are compared with its quota in each round that
-- changed one of them. A limit that is not enforced does not count. A lower quota counts from
-- :settle_s after its change, as the job has to read it first; in a group in which limits wait for
-- others (`limits.transition: strict`) from two leases after it. Limits count until their lease ends,
-- also those of expired brokers and of an earlier epoch. With `fast` others already have the share
-- of an expired broker or one that a new epoch does not know, and a new epoch hands back what
-- brokers had, so that the quota may be exceeded by as much. unexplained: without these limits it is
-- exceeded, too. One row per unbroken run of rounds; until_at is empty while it lasts.
-- With `limits.over` limits may exceed a quota by that part of it; use that exceeds it is paid back.
-- :over = 0  limits.over: fraction of the quota by which limits may exceed it (--conf: as there)
-- :tolerance = 0.000001  fraction of the quota by which the sum may exceed it
-- :settle_s = 10  seconds until a lower quota counts
-- violations: rows where unexplained
WITH newest AS (SELECT max(epoch) AS epoch, max(round_at) AS round_at FROM rounds),
epochs AS (
  SELECT epoch, last_at, unix_millis(next_at) AS next_ms
  FROM (
    SELECT
      epoch, max(round_at) AS last_at, lead(min(round_at)) OVER (ORDER BY epoch) AS next_at
    FROM rounds
    GROUP BY epoch
  ) AS all_epochs
  WHERE epoch < (SELECT epoch FROM newest)
),
expired AS (
  SELECT broker, epoch, seq, max(last_seen_at) AS last_seen_at
  FROM brokers
  WHERE status = 'gone'
  GROUP BY broker, epoch, seq
),
changes AS (
  SELECT
    l.broker, l.resource_group, l.dimension, l.epoch, l.round_at, l.ended, l.lease_ms,
    unix_millis(l.round_at) AS at_ms,
    unix_millis(lead(l.round_at) OVER in_order) AS next_ms,
    CASE WHEN NOT l.ended AND l.enforced THEN l.limit_per_s ELSE 0 END AS limit_per_s,
    l.reason_code,
    -- Strict: the lease was over before the broker expired.
    CASE
      WHEN x.broker IS NULL THEN 0
      WHEN unix_millis(l.round_at) - unix_millis(x.last_seen_at) >= l.lease_ms THEN 0
      ELSE lag(CASE WHEN NOT l.ended AND l.enforced THEN l.limit_per_s ELSE 0 END, 1, 0)
        OVER in_order
    END AS left_per_s
  FROM limit_values AS l
  LEFT JOIN expired AS x
    ON l.ended AND x.broker = l.broker AND x.epoch = l.epoch AND x.seq = l.seq
  WINDOW in_order AS (PARTITION BY l.broker, l.resource_group, l.dimension ORDER BY l.epoch, l.seq)
),
-- Each limit from when to when: until the next one, and no longer than a lease after the last round
-- of its epoch.
limited AS (
  SELECT
    c.resource_group, c.dimension, c.at_ms, c.limit_per_s,
    least(c.next_ms, unix_millis(e.last_at) + c.lease_ms) AS end_ms,
    CASE WHEN c.reason_code = 16 THEN c.at_ms ELSE e.next_ms END AS of_earlier_ms
  FROM changes AS c
  LEFT JOIN epochs AS e ON e.epoch = c.epoch
  WHERE c.limit_per_s > 0
),
-- From of_earlier_ms on it is one that an earlier epoch left (16: handed back, laws.reason.Reason).
-- And the limit of an expired broker is left for as long as its lease.
spans AS (
  SELECT
    resource_group, dimension, at_ms, limit_per_s, 0.0 AS left_per_s,
    CASE WHEN of_earlier_ms IS NULL THEN end_ms
      ELSE least(end_ms, greatest(at_ms, of_earlier_ms)) END AS end_ms
  FROM limited
  UNION ALL
  SELECT resource_group, dimension, greatest(at_ms, of_earlier_ms), 0.0, limit_per_s, end_ms
  FROM limited
  WHERE of_earlier_ms IS NOT NULL AND (end_ms IS NULL OR end_ms > of_earlier_ms)
  UNION ALL
  SELECT
    resource_group, dimension, at_ms, 0.0, left_per_s, least(next_ms, at_ms + lease_ms)
  FROM changes
  WHERE left_per_s > 0
),
steps AS (
  SELECT resource_group, dimension, at_ms, limit_per_s, left_per_s FROM spans
  UNION ALL
  SELECT resource_group, dimension, end_ms, -limit_per_s, -left_per_s FROM spans
  WHERE end_ms IS NOT NULL
),
-- Infinity can't be added up and taken off again: unlimited ones are counted.
limit_steps AS (
  SELECT
    t.ancestor AS resource_group, s.dimension, s.at_ms,
    sum(CASE WHEN abs(s.limit_per_s) < CAST('Infinity' AS DOUBLE) THEN s.limit_per_s ELSE 0 END)
      AS added,
    sum(CASE WHEN abs(s.left_per_s) < CAST('Infinity' AS DOUBLE) THEN s.left_per_s ELSE 0 END)
      AS added_left,
    sum(
      CASE
        WHEN s.limit_per_s = CAST('Infinity' AS DOUBLE) THEN 1
        WHEN s.limit_per_s = CAST('-Infinity' AS DOUBLE) THEN -1
        ELSE 0
      END
    ) AS added_unlimited
  FROM steps AS s
  JOIN group_tree AS t ON t.resource_group = s.resource_group
  GROUP BY t.ancestor, s.dimension, s.at_ms
),
-- Only hard groups bind the groups below them.
known_quotas AS (
  SELECT
    resource_group, dimension, version,
    unix_millis(changed_at) AS changed_ms,
    CASE WHEN coalesce(mode, 'hard') = 'hard' THEN coalesce(to_per_s, CAST('Infinity' AS DOUBLE))
      ELSE CAST('Infinity' AS DOUBLE) END AS quota_per_s
  FROM quota_changes
),
waiting AS (
  SELECT t.ancestor, 2 * max(c.lease_ms) AS wait_ms
  FROM changes AS c
  JOIN group_tree AS t ON t.resource_group = c.resource_group
  WHERE c.reason_code = 17  -- laws.reason.Reason: waiting
  GROUP BY t.ancestor
),
quota_steps AS (
  SELECT
    q.resource_group, q.dimension, q.version, q.quota_per_s,
    q.changed_ms + CASE
      WHEN q.quota_per_s < lag(q.quota_per_s, 1, CAST('Infinity' AS DOUBLE)) OVER (
        PARTITION BY q.resource_group, q.dimension ORDER BY q.version
      ) THEN greatest(CAST(:settle_s * 1000 AS BIGINT), coalesce(w.wait_ms, 0)) ELSE 0
    END AS at_ms
  FROM known_quotas AS q
  LEFT JOIN waiting AS w ON w.ancestor = q.resource_group
),
-- The newest quota by then, although a lower one counts later than a higher one that replaced it.
moments AS (
  SELECT
    resource_group, dimension, at_ms, added, added_left, added_unlimited,
    CAST(NULL AS BIGINT) AS version, CAST(NULL AS DOUBLE) AS quota_per_s
  FROM limit_steps
  UNION ALL
  SELECT resource_group, dimension, at_ms, 0, 0, 0, version, quota_per_s FROM quota_steps
),
at_each AS (
  SELECT
    resource_group, dimension, at_ms, sum(added) AS added, sum(added_left) AS added_left,
    sum(added_unlimited) AS added_unlimited,
    max(version) AS version, max_by(quota_per_s, version) AS quota_per_s
  FROM moments
  GROUP BY resource_group, dimension, at_ms
),
sums AS (
  SELECT
    resource_group, dimension, at_ms,
    lead(at_ms) OVER so_far AS next_ms,
    sum(added) OVER so_far AS limits_per_s,
    sum(added_left) OVER so_far AS expired_per_s,
    sum(added_unlimited) OVER so_far AS unlimited,
    max_by(quota_per_s, version) OVER so_far AS quota_per_s
  FROM at_each
  WINDOW so_far AS (PARTITION BY resource_group, dimension ORDER BY at_ms)
),
judged AS (
  SELECT
    resource_group, dimension, at_ms, next_ms, quota_per_s, expired_per_s,
    CASE WHEN unlimited > 0 THEN CAST('Infinity' AS DOUBLE) ELSE limits_per_s END AS limits_per_s,
    quota_per_s * (1 + :over + :tolerance) + 1e-9 AS most
  FROM sums
),
compared AS (
  SELECT
    *, coalesce(limits_per_s > most, false) AS unexplained,
    coalesce(limits_per_s + expired_per_s > most, false) AS is_over
  FROM judged
),
runs AS (
  SELECT
    *,
    count_if(NOT is_over) OVER (PARTITION BY resource_group, dimension ORDER BY at_ms) AS run
  FROM compared
),
found AS (
  SELECT
    resource_group, dimension, run, min(at_ms) AS first_ms,
    CASE WHEN bool_or(next_ms IS NULL) THEN NULL ELSE max(next_ms) END AS until_ms,
    max(limits_per_s + expired_per_s - quota_per_s) AS excess_per_s,
    max_by(quota_per_s, limits_per_s + expired_per_s - quota_per_s) AS quota_per_s,
    bool_or(unexplained) AS unexplained
  FROM runs
  WHERE is_over
  GROUP BY resource_group, dimension, run
)
SELECT
  f.resource_group, f.dimension, timestamp_millis(f.first_ms) AS first_at,
  timestamp_millis(f.until_ms) AS until_at,
  (coalesce(f.until_ms, unix_millis(n.round_at)) - f.first_ms) / 1000 AS seconds,
  f.quota_per_s, f.excess_per_s, f.unexplained
FROM found AS f
CROSS JOIN newest AS n
WHERE coalesce(timestamp_millis(f.until_ms), n.round_at) >= :since
ORDER BY first_at, f.resource_group, f.dimension
