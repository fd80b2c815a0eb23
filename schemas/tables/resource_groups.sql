-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE resource_groups (
  resource_group STRING NOT NULL COMMENT 'name of the resource group',
  publish_messages_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  publish_bytes_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  dispatch_messages_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  dispatch_bytes_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  total_messages_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  total_bytes_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  controller_mutations_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  request_ms_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  mode STRING COMMENT 'hard, soft (brokers are not limited, use above the limit is a warning) or shadow (computed and recorded only); null = hard',
  enforcement_percent DOUBLE COMMENT 'share of the brokers that are limited; null = 100',
  weight DOUBLE COMMENT 'of the group among its siblings; null = 1',
  priority BIGINT COMMENT 'of the group among its siblings, the higher first; null = 0',
  floor_publish_messages_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  floor_publish_bytes_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  floor_dispatch_messages_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  floor_dispatch_bytes_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  floor_total_messages_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  floor_total_bytes_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  floor_controller_mutations_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  floor_request_ms_per_s DOUBLE COMMENT 'guaranteed to the group within its parent, per second; null = 0',
  brokers STRING COMMENT 'JSON: weight, priority, floor and ceiling of single brokers; null = none',
  throttle STRING COMMENT 'JSON: by dimension, how requests are held to the limit (law, mode: refused or delayed, window_s, samples); null = token_bucket, soft',
  pulsar_fields STRING COMMENT 'JSON: more fields of the group in Pulsar, such as replicationDispatchRateInMsgs: kept for its tools, not enforced; null = none',
  updated_at TIMESTAMP NOT NULL COMMENT 'when the row was last written',
  updated_by STRING NOT NULL COMMENT 'who wrote it'
)
USING delta
COMMENT 'The quotas. Its change feed drives the job and says who changed what, when, from and to.'
TBLPROPERTIES (
  'delta.enableChangeDataFeed' = 'true',
  'delta.checkpointInterval' = '25',
  'delta.logRetentionDuration' = 'interval 365 days',
  'delta.deletedFileRetentionDuration' = 'interval 7 days'
);
