-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE decisions (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  entity STRING NOT NULL COMMENT 'who asked: called as its resource group',
  dimension STRING NOT NULL COMMENT 'what was asked for',
  requested_at TIMESTAMP NOT NULL COMMENT 'the event\'s own time',
  units DOUBLE NOT NULL COMMENT 'how much was asked for',
  id STRING COMMENT 'what the service calls the request',
  position STRING NOT NULL COMMENT 'where the event stood in its topic',
  admitted BOOLEAN NOT NULL COMMENT 'false: refused, and counted for nothing',
  throttle_ms BIGINT COMMENT 'for how long the client is to be delayed, or when to come back; null = for ever',
  balance DOUBLE COMMENT 'what is left, in units; null = no quota',
  error STRING COMMENT 'what a refused client is told',
  late_ms BIGINT NOT NULL COMMENT 'how much older than the newest event answered before',
  enforced BOOLEAN NOT NULL COMMENT 'false: the group is soft or a shadow, and this what would be'
)
USING delta
PARTITIONED BY (date)
COMMENT 'What became of requests: one row per event that was answered.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
