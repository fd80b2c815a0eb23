-- Which brokers went silent, and did they come back?
--
-- stale_at: reports were missing; gone_at: the broker's share was given to the others; back_at: it
-- reported again. silent_s: from its last report until then, or until the newest round.
WITH counted AS (
  SELECT *, count_if(status = 'live') OVER (PARTITION BY broker ORDER BY epoch, seq) AS lives
  FROM brokers
),
silences AS (
  SELECT
    broker, lives, max(last_seen_at) AS last_seen_at,
    min(round_at) FILTER (WHERE status = 'stale') AS stale_at,
    min(round_at) FILTER (WHERE status = 'gone') AS gone_at
  FROM counted
  WHERE status <> 'live'
  GROUP BY broker, lives
),
returns AS (
  SELECT broker, lives - 1 AS lives, round_at AS back_at FROM counted WHERE status = 'live'
)
SELECT
  broker, last_seen_at, stale_at, gone_at, back_at,
  CASE
    WHEN back_at IS NOT NULL THEN 'back'
    WHEN gone_at IS NOT NULL THEN 'gone'
    ELSE 'stale'
  END AS state,
  (
    unix_millis(coalesce(back_at, (SELECT max(round_at) FROM rounds))) - unix_millis(last_seen_at)
  ) / 1000 AS silent_s
FROM silences
LEFT JOIN returns USING (broker, lives)
WHERE coalesce(gone_at, stale_at) >= :since
ORDER BY last_seen_at, broker
