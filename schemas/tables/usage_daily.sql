-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE usage_daily (
  date DATE NOT NULL COMMENT 'the UTC day',
  tenant STRING NOT NULL COMMENT 'the part of the group\'s name before the first "/" or "::"',
  resource_group STRING NOT NULL COMMENT 'name of the resource group',
  broker STRING NOT NULL COMMENT 'name of the broker',
  reports BIGINT NOT NULL COMMENT 'reports that name the group',
  covered DOUBLE COMMENT 'the part of the day for which the broker\'s reports are there, 0 to 1',
  by_counters BOOLEAN COMMENT 'true: all amounts are differences of the broker\'s counters; else some are rates times their windows',
  publish_messages DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  publish_bytes DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  dispatch_messages DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  dispatch_bytes DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  total_messages DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  total_bytes DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  controller_mutations DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  request_ms DOUBLE COMMENT 'used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported',
  throttled_publish_messages DOUBLE COMMENT 'refused or delayed on this day',
  throttled_publish_bytes DOUBLE COMMENT 'refused or delayed on this day',
  throttled_dispatch_messages DOUBLE COMMENT 'refused or delayed on this day',
  throttled_dispatch_bytes DOUBLE COMMENT 'refused or delayed on this day',
  throttled_total_messages DOUBLE COMMENT 'refused or delayed on this day',
  throttled_total_bytes DOUBLE COMMENT 'refused or delayed on this day',
  throttled_controller_mutations DOUBLE COMMENT 'refused or delayed on this day',
  throttled_request_ms DOUBLE COMMENT 'refused or delayed on this day',
  peak_publish_messages_per_s DOUBLE COMMENT 'highest reported rate per second',
  peak_publish_bytes_per_s DOUBLE COMMENT 'highest reported rate per second',
  peak_dispatch_messages_per_s DOUBLE COMMENT 'highest reported rate per second',
  peak_dispatch_bytes_per_s DOUBLE COMMENT 'highest reported rate per second',
  peak_total_messages_per_s DOUBLE COMMENT 'highest reported rate per second',
  peak_total_bytes_per_s DOUBLE COMMENT 'highest reported rate per second',
  peak_controller_mutations_per_s DOUBLE COMMENT 'highest reported rate per second',
  peak_request_ms_per_s DOUBLE COMMENT 'highest reported rate per second'
)
USING delta
PARTITIONED BY (date)
COMMENT 'Usage of each resource group by each broker on each past day. `quotaplane maintain` makes the rows, once for each day.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
