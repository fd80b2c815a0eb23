-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE balance_actions (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  plan_hash STRING NOT NULL COMMENT 'identifies the plan\'s moves and splits',
  plan_epoch BIGINT NOT NULL COMMENT 'epoch of the plan',
  plan_seq BIGINT NOT NULL COMMENT 'round of the balancer that decided the plan',
  decided_at TIMESTAMP NOT NULL COMMENT 'when the plan was decided',
  mode STRING NOT NULL COMMENT 'manual (approved by hash) or auto',
  why STRING NOT NULL COMMENT 'the administrator\'s reason; empty in mode auto',
  executed_by STRING NOT NULL COMMENT 'user and host of the executor',
  action STRING NOT NULL COMMENT 'plan, move or split',
  outcome STRING NOT NULL COMMENT 'plan: begun, ended, refused; otherwise: done, already there, missed, failed, moved on, not done, refused',
  bundle STRING NOT NULL COMMENT 'the bundle; empty for a plan',
  source STRING NOT NULL COMMENT 'its owner before',
  target STRING NOT NULL COMMENT 'the broker that was to get it; of a split: boundaries',
  owner STRING NOT NULL COMMENT 'its owner afterwards; empty if not known',
  bytes_per_s DOUBLE NOT NULL COMMENT 'the bundle\'s traffic in the plan',
  attempts BIGINT NOT NULL COMMENT 'unloads that were made',
  took_ms DOUBLE NOT NULL COMMENT 'from the last unload until the new owner answered',
  message STRING NOT NULL COMMENT 'why it failed or was not done'
)
USING delta
PARTITIONED BY (date)
COMMENT 'What `quotaplane balance execute` did: begin and end of each plan, each move, each split.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
