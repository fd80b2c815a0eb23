-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE balance_rounds (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  cluster STRING NOT NULL COMMENT 'the setting balance.cluster',
  positions STRING NOT NULL COMMENT 'JSON: where its batch\'s input began and ended',
  strategy STRING NOT NULL COMMENT 'quotaplane, or Pulsar\'s class',
  settings STRING NOT NULL COMMENT 'JSON: options and policies in force',
  brokers ARRAY<STRING> NOT NULL COMMENT 'the brokers of the round',
  not_made STRING NOT NULL COMMENT 'JSON: orders that the executor has not carried out',
  first BOOLEAN NOT NULL COMMENT 'the first round of its epoch: all memories are empty',
  every_broker BOOLEAN NOT NULL COMMENT 'the table load has a row for each broker',
  bundles BIGINT NOT NULL COMMENT 'bundles on these brokers',
  bytes_per_s DOUBLE NOT NULL COMMENT 'of all bundles, in and out together',
  max_mean DOUBLE NOT NULL COMMENT 'bytes of the most loaded broker, divided by the mean',
  oldest_s DOUBLE NOT NULL COMMENT 'age of the oldest broker\'s numbers',
  moves BIGINT NOT NULL COMMENT 'moves decided',
  moved_bytes_per_s DOUBLE NOT NULL COMMENT 'load of the bundles to be moved',
  splits BIGINT NOT NULL COMMENT 'splits decided',
  skips BIGINT NOT NULL COMMENT 'refusals and skips',
  plan_hash STRING NOT NULL COMMENT 'identifies moves and splits; empty: there are none',
  mode STRING NOT NULL COMMENT 'propose or auto'
)
USING delta
PARTITIONED BY (date)
COMMENT 'One row per round of the balancer, written after everything else of it. With load, it is all that a replay needs.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
