-- Times covered by reports of each broker: a row for each time without interruption.
--
-- A broker is covered while its reports are in usage: a report covers its window, and the time since
-- the report before it, if that is short. It is also covered while the job ran and saw it live, as a
-- broker without groups in use has no rows in usage. While the job runs, rounds has a row at least
-- every half a minute.
WITH reports AS (
  SELECT DISTINCT
    broker, unix_millis({reported_at}) AS until_ms, coalesce(window_ms, 0) AS window_ms,
    coalesce({most_unreported} * window_ms, {without_window_ms}) AS longest_ms
  FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
),
in_order AS (
  SELECT *, lag(until_ms) OVER (PARTITION BY broker ORDER BY until_ms, window_ms) AS before_ms
  FROM reports
),
statuses AS (
  SELECT
    broker, status, unix_millis(round_at) AS at_ms, unix_millis(last_seen_at) AS seen_ms,
    row_number() OVER changes AS number,
    lead(unix_millis(CASE WHEN status = 'live' THEN round_at ELSE last_seen_at END)) OVER changes
      AS until_ms
  FROM brokers
  WINDOW changes AS (PARTITION BY broker ORDER BY epoch, seq)
),
live AS (
  SELECT broker, at_ms AS from_ms, until_ms FROM statuses WHERE status = 'live'
  UNION ALL
  -- Since before its first row that was not expired.
  SELECT broker, 0, seen_ms FROM statuses WHERE number = 1 AND status <> 'live'
  UNION ALL
  SELECT DISTINCT broker, 0, CAST(NULL AS BIGINT) FROM reports
  WHERE broker NOT IN (SELECT broker FROM brokers)
),
rounds_in_order AS (
  SELECT unix_millis(round_at) AS at_ms, lag(unix_millis(round_at)) OVER by_time AS before_ms
  FROM rounds
  WHERE round_at >= :usage_since
  WINDOW by_time AS (ORDER BY round_at)
),
runs AS (
  SELECT min(at_ms) AS from_ms, max(at_ms) AS until_ms
  FROM (
    SELECT
      at_ms,
      sum(CASE WHEN at_ms - before_ms <= 60000 THEN 0 ELSE 1 END) OVER (
        ORDER BY at_ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS run
    FROM rounds_in_order
  ) AS numbered
  GROUP BY run
),
stretches AS (
  SELECT
    broker, CASE WHEN until_ms - window_ms - before_ms BETWEEN 0 AND longest_ms THEN before_ms
      ELSE until_ms - window_ms END AS from_ms,
    until_ms
  FROM in_order
  UNION ALL
  SELECT
    l.broker, greatest(l.from_ms, r.from_ms), least(coalesce(l.until_ms, r.until_ms), r.until_ms)
  FROM live AS l
  JOIN runs AS r ON r.until_ms > l.from_ms AND r.from_ms < coalesce(l.until_ms, r.until_ms)
),
joined AS (
  SELECT
    *, max(until_ms) OVER (
      PARTITION BY broker ORDER BY from_ms, until_ms
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS covered_ms
  FROM stretches
),
numbered AS (
  SELECT
    *, sum(CASE WHEN from_ms <= covered_ms THEN 0 ELSE 1 END) OVER (
      PARTITION BY broker ORDER BY from_ms, until_ms
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS stretch
  FROM joined
)
SELECT
  broker, timestamp_millis(min(from_ms)) AS from_at, timestamp_millis(max(until_ms)) AS until_at
FROM numbered
GROUP BY broker, stretch
