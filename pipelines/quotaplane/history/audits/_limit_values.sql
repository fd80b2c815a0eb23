-- Each change of a limit, one row per dimension; Infinity = the group has no quota. Where enforced is
-- false (mode, enforcement_percent), the limit was computed but not enforced.
SELECT
  broker, resource_group, dimension, epoch, seq, round_at, ended,
  coalesce(enforced, true) AS enforced, reason_code, reason_numbers, demand_per_s, quota_per_s,
  coalesce(
    ended_because,
    reason_text(reason_code, reason_numbers, limit_per_s, demand_per_s, quota_per_s)
  ) AS reason,
  CASE WHEN ended OR limit_per_s IS NULL THEN DOUBLE('Infinity') ELSE limit_per_s END AS limit_per_s
FROM limits
LATERAL VIEW by_dimension(
  '{}_per_s', '{}_reason_code', '{}_reason_numbers', 'demand_{}_per_s', 'quota_{}_per_s'
) AS dimension, limit_per_s, reason_code, reason_numbers, demand_per_s, quota_per_s
