-- Which brokers used more than their limits, and when?
--
-- The use in each report that counted is compared with the limit in force when it was published. As
-- a token bucket does, a broker may let through :burst_s of its limit, and one message, at once. Use
-- above the limit adds up, and what is left of the limit later is taken off again: there is one row
-- for each time in which this sum was above 0, if it was more than the burst. A new limit takes time
-- to arrive, and so does its round: the highest limit counts that was in force in the report's window
-- or :settle_s before it, and none in that time after a broker's start, or after the lease end of a
-- limit that a new epoch did not renew. A rate that a stock broker did not report again adds nothing.
-- Where enforced is false (a soft or shadow group, or a partial roll-out), the broker was not limited
-- but would have been.
-- :tolerance = 0.05  fraction of the limit by which usage may exceed it
-- :settle_s = 5  seconds for which the previous limit still counts
-- :burst_s = 1.2  seconds of a limit that may be used at once
-- violations: rows where enforced
WITH reports AS (
  SELECT
    broker, resource_group, dimension, report_no, reported_at, unix_millis(reported_at) AS at_ms,
    window_ms, used_per_s, limit_per_s, enforced, limit_epoch, limit_seq,
    unix_millis(broker_started_at) AS started_ms,
    bool_or(used_per_s > limit_per_s * (1 + :tolerance)) OVER whole AS is_suspect,
    :settle_s * 1000 + max(coalesce(window_ms, 0)) OVER whole AS settle_ms
  FROM usage_and_limits
  WHERE counted AND reported_at >= :since
  WINDOW whole AS (PARTITION BY broker, resource_group, dimension)
),
suspects AS (
  SELECT broker, resource_group, dimension, max(settle_ms) AS settle_ms
  FROM reports
  WHERE is_suspect
  GROUP BY broker, resource_group, dimension
),
-- A limit is published again in a quarter of its lease.
lease_ends AS (
  SELECT
    epoch,
    unix_millis(max(round_at)) + 0.75 * (SELECT max(lease_ms) FROM recent_limits) AS end_ms
  FROM rounds
  WHERE epoch < (SELECT max(epoch) FROM rounds)
  GROUP BY epoch
),
-- After a slow round the next one begins at once.
round_ends AS (
  SELECT
    epoch, seq,
    CASE WHEN duration_ms >= 1000 AND lead(seq) OVER in_order = seq + 1
      THEN lead(round_at) OVER in_order ELSE round_at END AS end_at
  FROM rounds
  WINDOW in_order AS (PARTITION BY epoch ORDER BY seq)
),
changes AS (
  SELECT
    l.broker, l.resource_group, l.dimension, l.epoch, l.seq, l.limit_per_s, s.settle_ms,
    unix_millis(l.round_at) AS at_ms, unix_millis(coalesce(r.end_at, l.round_at)) AS end_ms,
    greatest(l.limit_per_s, lag(l.limit_per_s, 1, CAST('Infinity' AS DOUBLE)) OVER (
      PARTITION BY l.broker, l.resource_group, l.dimension ORDER BY l.epoch, l.seq
    )) AS highest_per_s
  FROM recent_limit_values AS l
  JOIN suspects AS s
    ON s.broker = l.broker AND s.resource_group = l.resource_group AND s.dimension = l.dimension
  LEFT JOIN round_ends AS r ON r.epoch = l.epoch AND r.seq = l.seq
),
events AS (
  SELECT
    broker, resource_group, dimension, report_no, reported_at, at_ms, window_ms, used_per_s,
    limit_per_s, enforced, limit_epoch, limit_seq, started_ms, settle_ms,
    limit_per_s AS highest_per_s, CAST(NULL AS DOUBLE) AS ended_per_s
  FROM reports
  WHERE is_suspect
  UNION ALL
  SELECT
    broker, resource_group, dimension, NULL, NULL, at_ms, NULL, NULL, NULL, NULL, epoch, seq, NULL,
    settle_ms, highest_per_s, NULL
  FROM changes
  UNION ALL
  SELECT
    broker, resource_group, dimension, NULL, NULL, end_ms, NULL, NULL, NULL, NULL, epoch, seq, NULL,
    settle_ms, highest_per_s, limit_per_s
  FROM changes
),
settled AS (
  SELECT
    *,
    greatest(
      max(highest_per_s) OVER (
        -- A window frame takes no parameter, so time is in units of what settles (at least 1 ns).
        PARTITION BY broker, resource_group, dimension ORDER BY at_ms / greatest(settle_ms, 1e-6)
        RANGE BETWEEN 1 PRECEDING AND CURRENT ROW
      ),
      coalesce(last_value(ended_per_s) IGNORE NULLS OVER (
        PARTITION BY broker, resource_group, dimension
        ORDER BY at_ms, limit_epoch, limit_seq, report_no NULLS FIRST
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ), CAST('Infinity' AS DOUBLE))
    ) AS most_per_s
  FROM events
),
-- In seconds of the limit.
measured AS (
  SELECT
    broker, resource_group, dimension, report_no, reported_at, used_per_s, enforced, limit_epoch,
    limit_seq, most_per_s AS limit_per_s,
    used_per_s > most_per_s * (1 + :tolerance) AS is_above,
    coalesce(window_ms, least(since_ms, 60000), 60000) / 1000 AS window_s,
    since_ms / 1000 AS since_s, is_repeated,
    :burst_s + coalesce(1 / nullif(most_per_s, 0), 0) AS burst_s,
    -- Since when the broker has been limited without interruption.
    count_if(NOT is_limited) OVER (
      PARTITION BY broker, resource_group, dimension ORDER BY report_no
    ) AS part
  FROM (
    SELECT
      s.*,
      s.at_ms - lag(s.at_ms) OVER in_order AS since_ms,
      s.started_ms IS NULL AND s.used_per_s = lag(s.used_per_s) OVER in_order AS is_repeated,
      s.most_per_s < CAST('Infinity' AS DOUBLE)
        AND coalesce(s.at_ms - s.started_ms > s.settle_ms, true)
        AND coalesce(s.at_ms < e.end_ms, true) AS is_limited
    FROM settled AS s
    LEFT JOIN lease_ends AS e ON e.epoch = s.limit_epoch
    WHERE s.report_no IS NOT NULL
    WINDOW in_order AS (
      PARTITION BY s.broker, s.resource_group, s.dimension ORDER BY s.report_no
    )
  ) AS of_reports
  WHERE is_limited
),
-- What is used beyond the limit, in seconds of it. So much of one report counts that the sum is
-- above the burst, and no more: else it would take long until the sum is 0 again.
excesses AS (
  SELECT
    *,
    CASE
      WHEN limit_per_s > 0
        THEN least(
          (used_per_s / limit_per_s - (1 + :tolerance)) * window_s,
          CASE WHEN is_repeated THEN 0 ELSE burst_s + window_s END
        )
      WHEN used_per_s > 0 AND NOT is_repeated THEN burst_s + window_s
      ELSE -window_s
    END AS excess_s,
    -- Left of the limit between the windows of two reports.
    (1 + :tolerance) * greatest(coalesce(since_s, 0) - window_s, 0) AS free_s
  FROM measured
),
added_up AS (
  SELECT *, sum(excess_s - free_s) OVER so_far AS total_s
  FROM excesses
  WINDOW so_far AS (
    PARTITION BY broker, resource_group, dimension, part, enforced ORDER BY report_no
  )
),
-- The sum is never below 0, neither before nor after a report.
levels AS (
  SELECT
    *, total_s - least(0, min(total_s - greatest(excess_s, 0)) OVER (
      PARTITION BY broker, resource_group, dimension, part, enforced ORDER BY report_no
    )) AS level_s
  FROM added_up
),
runs AS (
  SELECT
    *, count_if(level_s <= 0) OVER (
      PARTITION BY broker, resource_group, dimension, part, enforced ORDER BY report_no
    ) AS run
  FROM levels
),
ranked AS (
  SELECT
    *,
    min(reported_at) OVER whole_run AS first_at, max(reported_at) OVER whole_run AS last_at,
    count(*) OVER whole_run AS reports, max(level_s) OVER whole_run AS most_s,
    max(burst_s) OVER whole_run AS longest_burst_s,
    row_number() OVER (
      PARTITION BY broker, resource_group, dimension, part, enforced, run
      ORDER BY used_per_s - limit_per_s DESC, report_no
    ) AS place
  FROM runs
  WHERE is_above AND level_s > 0
  WINDOW whole_run AS (PARTITION BY broker, resource_group, dimension, part, enforced, run)
)
SELECT
  r.broker, r.resource_group, r.dimension, r.first_at, r.last_at, r.reports, r.limit_per_s,
  r.used_per_s AS worst_used_per_s,
  -- Not the view's own: that one would be made of every limit before the join.
  limit_reason(
    l.ended_because, l.reason_code, l.reason_numbers,
    nullif(l.limit_per_s, CAST('Infinity' AS DOUBLE)), l.demand_per_s, l.quota_per_s
  ) AS reason,
  r.enforced
FROM ranked AS r
JOIN recent_limit_values AS l
  ON l.broker = r.broker AND l.resource_group = r.resource_group AND l.dimension = r.dimension
  AND l.epoch = r.limit_epoch AND l.seq = r.limit_seq
WHERE r.place = 1 AND r.most_s > r.longest_burst_s
ORDER BY r.first_at, r.broker, r.resource_group, r.dimension
