-- A limit given or taken, one row per dimension; Infinity where the group has no quota. Where it is
-- not enforced (mode, enforcement_percent) it is only what it would be.
SELECT
  broker, `group`, dimension, epoch, seq, at, reason, ended, coalesce(enforced, true) AS enforced,
  CASE WHEN ended OR limit_per_s IS NULL THEN DOUBLE('Infinity') ELSE limit_per_s END AS limit_per_s
FROM limits
LATERAL VIEW stack(7,
  'publish_messages', publish_messages_per_s, publish_messages_reason,
  'publish_bytes', publish_bytes_per_s, publish_bytes_reason,
  'dispatch_messages', dispatch_messages_per_s, dispatch_messages_reason,
  'dispatch_bytes', dispatch_bytes_per_s, dispatch_bytes_reason,
  'total_messages', total_messages_per_s, total_messages_reason,
  'total_bytes', total_bytes_per_s, total_bytes_reason,
  'controller_mutations', controller_mutations_per_s, controller_mutations_reason
) AS dimension, limit_per_s, reason
