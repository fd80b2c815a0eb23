-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE leases (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  shard BIGINT NOT NULL COMMENT 'the part of the job\'s state that the group belongs to',
  broker STRING NOT NULL COMMENT 'name of the broker',
  resource_group STRING NOT NULL COMMENT 'name of the resource group',
  broker_status STRING NOT NULL COMMENT 'live or stale',
  seen_at TIMESTAMP NOT NULL COMMENT 'when the newest report that names the group was published',
  has_limit BOOLEAN NOT NULL COMMENT 'a limit was issued; else all limits are null',
  enforced BOOLEAN NOT NULL COMMENT 'false: the broker is not limited, the limit is computed',
  lease_ends_at TIMESTAMP COMMENT 'when the lease ends if the limit is not sent again; null = not sent',
  used_publish_messages_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  used_publish_bytes_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  used_dispatch_messages_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  used_dispatch_bytes_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  used_total_messages_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  used_total_bytes_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  used_controller_mutations_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  used_request_ms_per_s DOUBLE COMMENT 'used rate per second in the newest report',
  demand_publish_messages_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  demand_publish_bytes_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  demand_dispatch_messages_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  demand_dispatch_bytes_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  demand_total_messages_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  demand_total_bytes_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  demand_controller_mutations_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  demand_request_ms_per_s DOUBLE COMMENT 'estimated demand; null = saturated, not known',
  limit_publish_messages_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  limit_publish_bytes_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  limit_dispatch_messages_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  limit_dispatch_bytes_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  limit_total_messages_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  limit_total_bytes_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  limit_controller_mutations_per_s DOUBLE COMMENT 'limit per second; null = unlimited',
  limit_request_ms_per_s DOUBLE COMMENT 'limit per second; null = unlimited'
)
USING delta
PARTITIONED BY (shard)
COMMENT 'The newest state of each broker\'s use of each resource group: one row per pair. The job replaces the rows every few seconds.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
