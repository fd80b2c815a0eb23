-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE recording (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  shard BIGINT NOT NULL COMMENT 'the part of the state; -1 = the job\'s settings',
  kind STRING NOT NULL COMMENT 'reports, groups, rejected, departures, timer (nothing arrived), state, settings',
  payload BINARY NOT NULL COMMENT 'Arrow IPC streams; departures, settings: JSON'
)
USING delta
PARTITIONED BY (date)
COMMENT 'The quota job\'s inputs as each shard got them, and its state from time to time: what `quotaplane replay` runs again.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
