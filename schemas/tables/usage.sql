-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE usage (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  broker STRING NOT NULL COMMENT 'name of the broker',
  resource_group STRING NOT NULL COMMENT 'name of the resource group',
  published_at TIMESTAMP COMMENT 'when the report was published; null if the topic does not say',
  position STRING NOT NULL COMMENT 'where the report stood in its topic',
  window_ms BIGINT COMMENT 'the time over which the rates were measured',
  counted BOOLEAN COMMENT 'limits were decided with it; false: it was too old, or its broker sent too many at once; null = true',
  publish_messages_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  publish_bytes_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  dispatch_messages_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  dispatch_bytes_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  total_messages_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  total_bytes_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  controller_mutations_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  request_ms_per_s DOUBLE COMMENT 'used rate per second; null = unchanged since the last report, or not reported',
  throttled_publish_messages_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  throttled_publish_bytes_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  throttled_dispatch_messages_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  throttled_dispatch_bytes_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  throttled_total_messages_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  throttled_total_bytes_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  throttled_controller_mutations_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  throttled_request_ms_per_s DOUBLE COMMENT 'refused or delayed per second; null = not reported',
  broker_started_at TIMESTAMP COMMENT 'the broker\'s start; null = not reported',
  counter_publish_messages DOUBLE COMMENT 'used since broker_started_at; null = not counted',
  counter_publish_bytes DOUBLE COMMENT 'used since broker_started_at; null = not counted',
  counter_dispatch_messages DOUBLE COMMENT 'used since broker_started_at; null = not counted',
  counter_dispatch_bytes DOUBLE COMMENT 'used since broker_started_at; null = not counted',
  counter_controller_mutations DOUBLE COMMENT 'used since broker_started_at; null = not counted',
  counter_request_ms DOUBLE COMMENT 'used since broker_started_at; null = not counted'
)
USING delta
PARTITIONED BY (date)
COMMENT 'Usage of each resource group as each broker reported it: one row per report entry.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
