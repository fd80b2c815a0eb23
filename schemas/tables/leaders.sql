-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE leaders (
  job STRING NOT NULL COMMENT 'quota or balance',
  epoch BIGINT NOT NULL COMMENT 'of the leader\'s checkpoint',
  checkpoint_id STRING NOT NULL COMMENT 'which checkpoint that is',
  claim_id STRING NOT NULL COMMENT 'random; another one for each process',
  process STRING NOT NULL COMMENT 'where the leader runs: process id, host, checkpoint',
  claimed_at TIMESTAMP NOT NULL COMMENT 'when it began to lead'
)
USING delta
COMMENT 'The process of each job that leads: only it may write to the history and publish. A job claims the row when it starts, and ends when it finds another claim there.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
