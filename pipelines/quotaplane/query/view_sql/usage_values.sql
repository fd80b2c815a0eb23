-- Usage of each broker and group: a row for each report and dimension.
SELECT
  epoch, seq, round_at, date, broker, resource_group, dimension, reported_at, window_ms, hold_ms,
  used_per_s, throttled_per_s
FROM (
  SELECT
    epoch, seq, round_at, date, broker, resource_group, {reported_at} AS reported_at, window_ms,
    {hold_ms} AS hold_ms, {unchanged}
  FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
  WINDOW so_far AS (
    PARTITION BY broker, resource_group ORDER BY {reported_at}, epoch, seq
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
) AS filled by_dimension(used_per_s: %_per_s, throttled_per_s: throttled_%_per_s)
WHERE used_per_s IS NOT NULL
