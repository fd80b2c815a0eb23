-- Usage as amounts: messages, bytes, partitions or milliseconds of each report.
--
-- An amount is what the broker's counter grew by since its report before, however many were lost in
-- between; its first report has all since its start, if the job ran then. Once a counter is missing
-- or smaller than before (no counter gets smaller), the rates count for the rest of the incarnation.
-- With a rate it is the rate times the window that the broker measured, and times what is missing
-- until the window of the next report begins; if that is known from a counter, it is there.
-- It belongs to the day on which the report was published, whenever that was recorded.
WITH reported AS (
  SELECT
    to_date({reported_at}) AS date, broker, resource_group, broker_started_at, epoch, seq,
    published_at, round_at, {reported_at} AS reported_at,
    unix_millis({reported_at}) AS at_ms, window_ms,
    lead(unix_millis({reported_at})) OVER in_order AS next_ms,
    coalesce(lead(window_ms) OVER in_order, 0) AS next_window_ms,
    CASE WHEN lag(epoch) OVER in_order IS NULL AND broker_started_at >= (
      SELECT greatest(min(round_at), :usage_since) FROM rounds
    ) THEN 0 END AS began_at_0,
    {counters}, {before}, {unchanged}
  FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
  WINDOW
    in_order AS ({of_incarnation}),
    so_far AS ({of_incarnation} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
judged AS (
  SELECT
    *, coalesce(max({is_broken}) OVER so_far, false) AS is_broken,
    CASE
      WHEN window_ms IS NULL THEN least(coalesce(next_ms - at_ms, 0), {without_window_ms})
      ELSE window_ms + greatest(
        0, least(coalesce(next_ms - next_window_ms - at_ms, 0), {most_unreported} * window_ms)
      )
    END AS counted_ms
  FROM reported
  WINDOW so_far AS ({of_incarnation} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
with_growth AS (SELECT *, {growth} FROM judged)
SELECT
  date, broker, resource_group, dimension, reported_at, used_per_s, throttled_per_s,
  coalesce(
    growth,
    used_per_s * (CASE WHEN counter IS NULL OR is_broken THEN counted_ms ELSE window_ms END) / 1000
  ) AS used,
  growth IS NOT NULL AS by_counter,
  throttled_per_s * coalesce(window_ms, counted_ms) / 1000 AS throttled
FROM (
  SELECT *, {counter_totals}, {growth_totals} FROM with_growth
) AS complete by_dimension(
  used_per_s: %_per_s, throttled_per_s: throttled_%_per_s, counter: counter_%, growth: growth_%
)
WHERE used_per_s IS NOT NULL
