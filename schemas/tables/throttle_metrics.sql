-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE throttle_metrics (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  entity STRING NOT NULL COMMENT 'who asked: called as its resource group',
  dimension STRING NOT NULL COMMENT 'what was asked for',
  since TIMESTAMP NOT NULL COMMENT 'its first event\'s time in the micro-batch',
  until TIMESTAMP NOT NULL COMMENT 'its last event\'s',
  events BIGINT NOT NULL COMMENT 'events answered',
  refused BIGINT NOT NULL COMMENT 'of these, refused',
  delayed BIGINT NOT NULL COMMENT 'of these, admitted and to be delayed',
  late BIGINT NOT NULL COMMENT 'of these, late',
  units_asked DOUBLE NOT NULL COMMENT 'units of all of them',
  units_admitted DOUBLE NOT NULL COMMENT 'units of those admitted',
  rate_per_s DOUBLE COMMENT 'units admitted over the last 11 windows of a second; null = no quota',
  tokens DOUBLE COMMENT 'what is left, in units; null = no quota',
  throttle_ms DOUBLE COMMENT 'mean over what was throttled in these windows; null = nothing, or for ever'
)
USING delta
PARTITIONED BY (date)
COMMENT 'What each entity asked for in a micro-batch, and KIP-599\'s metrics as of its last event.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
