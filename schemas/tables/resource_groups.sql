-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE resource_groups (
  `group` STRING NOT NULL COMMENT 'name of the resource group',
  publish_messages_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  publish_bytes_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  dispatch_messages_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  dispatch_bytes_per_s DOUBLE COMMENT 'the group\'s global quota per second; null = unlimited',
  updated_at TIMESTAMP NOT NULL COMMENT 'when the row was last written',
  updated_by STRING NOT NULL COMMENT 'who wrote it'
)
USING delta
COMMENT 'The quotas. Its change feed drives the job and says who changed what, when, from and to.'
TBLPROPERTIES (
  'delta.enableChangeDataFeed' = 'true',
  'delta.checkpointInterval' = '100',
  'delta.logRetentionDuration' = 'interval 365 days',
  'delta.deletedFileRetentionDuration' = 'interval 7 days'
);
