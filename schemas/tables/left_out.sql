-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE left_out (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  number BIGINT NOT NULL COMMENT 'number of reports left out before, in all rounds',
  reports BIGINT NOT NULL COMMENT 'how many reports were left out; at least 1',
  positions STRING NOT NULL COMMENT 'JSON: where the stretch begins and ends',
  chosen ARRAY<STRING> COMMENT 'positions of the reports that were left out; null = the whole stretch'
)
USING delta
COMMENT 'Reports that a round did not read, as they were too old or too many to decide with: one row per round and stretch of the topic. The job records them in `usage` later.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
