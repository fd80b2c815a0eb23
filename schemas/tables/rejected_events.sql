-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE rejected_events (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  id STRING COMMENT 'what the service calls the request',
  position STRING NOT NULL COMMENT 'where the event stood in its topic',
  reason STRING NOT NULL COMMENT 'short code, for example bad_units or too_late',
  entity STRING COMMENT 'what of the event could be read',
  dimension STRING COMMENT 'what of the event could be read',
  requested_at TIMESTAMP COMMENT 'what of the event could be read',
  units DOUBLE COMMENT 'what of the event could be read',
  raw BINARY COMMENT 'the event, cut off, where that is not all'
)
USING delta
COMMENT 'Dead letters: events that could not be used, with the reason.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
