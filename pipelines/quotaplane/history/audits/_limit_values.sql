-- Each change of a limit, one row per dimension; Infinity = the group has no quota. Where enforced is
-- false (mode, enforcement_percent), the limit was computed but not enforced.
SELECT
  broker, `group`, dimension, epoch, seq, at, reason, ended, coalesce(enforced, true) AS enforced,
  CASE WHEN ended OR limit_per_s IS NULL THEN DOUBLE('Infinity') ELSE limit_per_s END AS limit_per_s
FROM limits
LATERAL VIEW by_dimension('{}_per_s', '{}_reason') AS dimension, limit_per_s, reason
