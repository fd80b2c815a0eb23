-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE rejected_reports (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  position STRING NOT NULL COMMENT 'where the report stood in its topic',
  published_at TIMESTAMP COMMENT 'when the report was published; null if the topic does not say',
  reason STRING NOT NULL COMMENT 'short code, for example truncated or stale',
  detail STRING COMMENT 'what exactly was wrong',
  counts_as_bad BOOLEAN NOT NULL COMMENT 'the whole report was refused, and not for its age',
  raw BINARY COMMENT 'the report, or what of it could not be used; empty when there was too much',
  reports BIGINT COMMENT 'how many reports it stands for, position is of the first; null: 1; 0: not known',
  sender STRING COMMENT 'the broker that the report names; null: it could not be read, or several'
)
USING delta
COMMENT 'Dead letters: reports that could not be used, with the reason and the raw bytes.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
