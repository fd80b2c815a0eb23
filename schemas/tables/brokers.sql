-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE brokers (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  broker STRING NOT NULL COMMENT 'name of the broker',
  status STRING NOT NULL COMMENT 'live, stale or gone, from this round on',
  last_seen_at TIMESTAMP NOT NULL COMMENT 'when its last usable report was published'
)
USING delta
COMMENT 'One row per change of a broker\'s status.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
