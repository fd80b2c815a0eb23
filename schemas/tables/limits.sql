-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE limits (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  `date` DATE NOT NULL COMMENT 'UTC day of `at`; the partition that maintain expires',
  broker STRING NOT NULL COMMENT 'name of the broker',
  `group` STRING NOT NULL COMMENT 'name of the resource group',
  publish_messages_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  publish_bytes_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  dispatch_messages_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  dispatch_bytes_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  total_messages_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  total_bytes_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  controller_mutations_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  publish_messages_reason STRING COMMENT 'why publish_messages_per_s is what it is',
  publish_bytes_reason STRING COMMENT 'why publish_bytes_per_s is what it is',
  dispatch_messages_reason STRING COMMENT 'why dispatch_messages_per_s is what it is',
  dispatch_bytes_reason STRING COMMENT 'why dispatch_bytes_per_s is what it is',
  total_messages_reason STRING COMMENT 'why total_messages_per_s is what it is',
  total_bytes_reason STRING COMMENT 'why total_bytes_per_s is what it is',
  controller_mutations_reason STRING COMMENT 'why controller_mutations_per_s is what it is',
  lease_ms BIGINT NOT NULL COMMENT 'how long the limit holds without being renewed',
  ended BOOLEAN NOT NULL COMMENT 'the broker no longer has the group; the limits are void',
  enforced BOOLEAN COMMENT 'false: only what the limits would be, the broker is not limited; null = true'
)
USING delta
PARTITIONED BY (date)
COMMENT 'What each broker was allowed of each resource group, and why: one row per limit that changed.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
