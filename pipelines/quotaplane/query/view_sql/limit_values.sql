-- Limits of each broker and group: a row for each limit of a table and each dimension.
SELECT
  epoch, seq, round_at, date, broker, resource_group, dimension,{columns}
  CASE WHEN ended OR rate IS NULL THEN CAST('Infinity' AS DOUBLE) ELSE rate END AS limit_per_s,
  ended, coalesce(enforced, true) AS enforced, lease_ms, demand_per_s, quota_per_s,
  reason_code, reason_numbers, ended_because,
  limit_reason(ended_because, reason_code, reason_numbers, rate, demand_per_s, quota_per_s)
    AS reason
FROM {limits} by_dimension(
  rate: %_per_s, demand_per_s: demand_%_per_s, quota_per_s: quota_%_per_s,
  reason_code: %_reason_code, reason_numbers: %_reason_numbers
)
