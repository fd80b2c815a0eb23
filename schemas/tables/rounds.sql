-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE rounds (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  positions STRING NOT NULL COMMENT 'JSON: where the round\'s input began and ended',
  reports BIGINT NOT NULL COMMENT 'reports used',
  entries BIGINT NOT NULL COMMENT 'entries in them',
  duplicates BIGINT NOT NULL COMMENT 'reports that had been seen before',
  outdated BIGINT NOT NULL COMMENT 'reports older than one already used',
  rejected BIGINT NOT NULL COMMENT 'reports not used, or only in part (see rejected_reports)',
  uncounted BIGINT NOT NULL COMMENT 'reports that were too old or too many to decide with; usage has them, or will',
  quota_changes BIGINT NOT NULL COMMENT 'changes of resource_groups taken in',
  groups_recomputed BIGINT NOT NULL COMMENT 'resource groups whose limits were computed',
  limits_sent BIGINT NOT NULL COMMENT 'limits that went out, changed or only renewed',
  messages_sent BIGINT NOT NULL COMMENT 'messages they went out in',
  brokers_live BIGINT NOT NULL COMMENT 'brokers that counted',
  soft_exceeded BIGINT NOT NULL COMMENT 'soft groups over their quota',
  duration_ms BIGINT COMMENT 'from the micro-batch\'s start until its decisions were made: reading, deciding',
  previous_duration_ms BIGINT COMMENT 'the micro-batch before, with history and publishing; null: first',
  lag_ms BIGINT COMMENT 'age of the newest report, when the decisions were made; null: no report',
  law STRING COMMENT 'the law that divided the quotas',
  renewal_age_ms BIGINT COMMENT 'how long ago the limit was published that waits longest for its renewal; null: no limit, or nothing happened'
)
USING delta
COMMENT 'One row per round, written after everything else of it: a round that is here is complete. Of rounds in which nothing happened, one in half a minute has a row.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
