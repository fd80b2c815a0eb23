-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE administrator_rates (
  cluster STRING NOT NULL COMMENT 'name of the Pulsar cluster',
  place STRING NOT NULL COMMENT 'full name of the topic, or the namespace: tenant/name',
  kind STRING NOT NULL COMMENT 'publish or dispatch',
  resource_group STRING NOT NULL COMMENT 'name of the resource group',
  messages_per_s DOUBLE COMMENT 'null = unlimited',
  bytes_per_s DOUBLE COMMENT 'null = unlimited',
  policy STRING COMMENT 'the rate as Pulsar has it, JSON; null: of a namespace, where it stays',
  seen_at TIMESTAMP NOT NULL COMMENT 'when the enforcer read it',
  seen_by STRING NOT NULL COMMENT 'the process that read it, and its host'
)
USING delta
COMMENT 'Rates that administrators set on topics and namespaces of a Pulsar cluster, as the enforcer found them: it enforces no higher ones, and writes a topic\'s again when it leaves the topic.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
