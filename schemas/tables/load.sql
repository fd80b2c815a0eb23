-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE load (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  cluster STRING NOT NULL COMMENT 'the setting balance.cluster',
  broker STRING NOT NULL COMMENT 'name of the broker',
  started_at TIMESTAMP NOT NULL COMMENT 'when the broker or its collector started',
  sequence BIGINT NOT NULL COMMENT 'number of the report since then',
  measured_at TIMESTAMP NOT NULL COMMENT 'when the numbers were measured',
  published_at TIMESTAMP COMMENT 'when the report was published',
  position STRING NOT NULL COMMENT 'where the report stood in its topic',
  draining BOOLEAN NOT NULL COMMENT 'the report says that the broker is to be taken out',
  cpu_usage DOUBLE NOT NULL COMMENT 'use, in the unit of its limit',
  memory_usage DOUBLE NOT NULL COMMENT 'use, in the unit of its limit',
  direct_memory_usage DOUBLE NOT NULL COMMENT 'use, in the unit of its limit',
  bandwidth_in_usage DOUBLE NOT NULL COMMENT 'use, in the unit of its limit',
  bandwidth_out_usage DOUBLE NOT NULL COMMENT 'use, in the unit of its limit',
  cpu_limit DOUBLE NOT NULL COMMENT 'what the machine has; 0 = not known',
  memory_limit DOUBLE NOT NULL COMMENT 'what the machine has; 0 = not known',
  direct_memory_limit DOUBLE NOT NULL COMMENT 'what the machine has; 0 = not known',
  bandwidth_in_limit DOUBLE NOT NULL COMMENT 'what the machine has; 0 = not known',
  bandwidth_out_limit DOUBLE NOT NULL COMMENT 'what the machine has; 0 = not known',
  bundles ARRAY<STRING> NOT NULL COMMENT 'the bundles that it serves',
  bytes_in_per_s ARRAY<FLOAT> NOT NULL COMMENT 'of each bundle',
  bytes_out_per_s ARRAY<FLOAT> NOT NULL COMMENT 'of each bundle',
  messages_in_per_s ARRAY<FLOAT> NOT NULL COMMENT 'of each bundle',
  messages_out_per_s ARRAY<FLOAT> NOT NULL COMMENT 'of each bundle',
  topics ARRAY<INT> NOT NULL COMMENT 'of each bundle; -1 = not known',
  sessions ARRAY<INT> NOT NULL COMMENT 'of each bundle; -1 = not known'
)
USING delta
PARTITIONED BY (date)
COMMENT 'Brokers\' load reports as the balancer used them: one row per broker and round in which it had a new report. In a round with every_broker, all brokers have a row.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
