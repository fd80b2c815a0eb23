-- Which limits outlived their leases, and which brokers were forgotten?
--
-- problem is "not renewed" (limits in force were not published again within their lease, for example
-- as no round ran, so that brokers fell back to their safe limits), "not ended" (a broker expired, and a lease later its limits had
-- not ended), or "not expired" (a broker was stale for two leases, and neither expired nor came
-- back). since_at: when the lease was over. until_at: when that ended; empty: it lasts until :until.
-- limits: so many limits that are enforced, of a broker and a group each; of "not renewed" at most.
-- violations: every row
WITH newest AS (SELECT max(round_at) AS round_at, max(epoch) AS epoch FROM rounds),
spans AS (
  SELECT
    broker, resource_group, epoch, round_at, lease_ms, ended, coalesce(enforced, true) AS enforced,
    unix_millis(round_at) AS at_ms,
    unix_millis(lead(round_at) OVER (PARTITION BY broker, resource_group ORDER BY epoch, seq))
      AS next_ms
  FROM limits
),
in_force AS (SELECT * FROM spans WHERE NOT ended AND enforced),
leases AS (SELECT min(lease_ms) AS shortest_ms, max(lease_ms) AS longest_ms FROM in_force),
pauses AS (
  -- From the renewal that was longest ago, as a round left it, to the next round.
  SELECT
    unix_millis(round_at) - coalesce(renewal_age_ms, 0) AS from_ms,
    unix_millis(lead(round_at) OVER (ORDER BY round_at)) AS to_ms
  FROM rounds
),
long_pauses AS (
  SELECT p.from_ms, CASE WHEN bool_or(p.to_ms IS NULL) THEN NULL ELSE max(p.to_ms) END AS to_ms
  FROM pauses AS p
  CROSS JOIN leases AS s
  WHERE coalesce(p.to_ms, unix_millis(:until)) - p.from_ms > s.shortest_ms
  GROUP BY p.from_ms
),
not_renewed AS (
  SELECT
    'not renewed' AS problem, CAST(NULL AS STRING) AS broker,
    min(p.from_ms + f.lease_ms) AS since_ms, p.to_ms AS until_ms, count(*) AS limits
  FROM long_pauses AS p
  JOIN in_force AS f
    ON f.at_ms <= p.from_ms AND (f.next_ms IS NULL OR f.next_ms > p.from_ms)
    AND p.from_ms + f.lease_ms < coalesce(p.to_ms, unix_millis(:until))
  GROUP BY p.from_ms, p.to_ms
),
statuses AS (
  SELECT
    broker, status, epoch, unix_millis(round_at) AS at_ms,
    unix_millis(lead(round_at) OVER (PARTITION BY broker ORDER BY epoch, seq)) AS next_ms
  FROM brokers
),
-- What the newest rounds can't show yet is no problem.
not_ended AS (
  SELECT
    'not ended' AS problem, b.broker, min(b.at_ms + f.lease_ms) AS since_ms,
    CASE WHEN bool_or(b.next_ms IS NULL AND f.next_ms IS NULL) THEN NULL
      ELSE max(least(b.next_ms, f.next_ms)) END AS until_ms,
    count(*) AS limits
  FROM statuses AS b
  CROSS JOIN newest AS n
  JOIN in_force AS f
    ON f.broker = b.broker AND f.epoch = b.epoch AND f.at_ms <= b.at_ms
    AND (f.next_ms IS NULL OR f.next_ms > b.at_ms + f.lease_ms)
  WHERE
    b.status = 'gone' AND (b.next_ms IS NULL OR b.next_ms > b.at_ms + f.lease_ms)
    AND unix_millis(n.round_at) > b.at_ms + f.lease_ms
  GROUP BY b.broker, b.at_ms
),
not_expired AS (
  SELECT
    'not expired' AS problem, b.broker, b.at_ms + 2 * s.longest_ms AS since_ms,
    b.next_ms AS until_ms, CAST(0 AS BIGINT) AS limits
  FROM statuses AS b
  CROSS JOIN leases AS s
  CROSS JOIN newest AS n
  WHERE
    b.status = 'stale' AND b.epoch = n.epoch
    AND coalesce(b.next_ms, unix_millis(n.round_at)) > b.at_ms + 2 * s.longest_ms
),
found AS (
  SELECT * FROM not_renewed
  UNION ALL
  SELECT * FROM not_ended
  UNION ALL
  SELECT * FROM not_expired
)
SELECT
  problem, broker, timestamp_millis(since_ms) AS since_at, timestamp_millis(until_ms) AS until_at,
  (coalesce(until_ms, unix_millis(:until)) - since_ms) / 1000 AS seconds, limits
FROM found
WHERE coalesce(timestamp_millis(until_ms), :until) >= :since
ORDER BY since_at, problem, broker
