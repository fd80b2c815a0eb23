-- A limit given or taken, one row per dimension; Infinity where the group has no quota. Where it is
-- not enforced (mode, enforcement_percent) it is only what it would be.
SELECT
  broker, `group`, dimension, epoch, seq, at, reason, ended, coalesce(enforced, true) AS enforced,
  CASE WHEN ended OR limit_per_s IS NULL THEN DOUBLE('Infinity') ELSE limit_per_s END AS limit_per_s
FROM limits
LATERAL VIEW by_dimension('{}_per_s', '{}_reason') AS dimension, limit_per_s, reason
