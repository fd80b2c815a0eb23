-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE attachments (
  kind STRING NOT NULL COMMENT 'scope, tenant, namespace or topic',
  name STRING NOT NULL COMMENT 'user=alice,client=a; acme; acme/a; how names of topics begin',
  resource_group STRING NOT NULL COMMENT 'name of the resource group',
  updated_at TIMESTAMP NOT NULL COMMENT 'when the row was last written',
  updated_by STRING NOT NULL COMMENT 'who wrote it'
)
USING delta
COMMENT 'Attachments to resource groups, without tenants and namespaces of a Pulsar cluster that groups are copied from. Its change feed says who changed what, when, from and to.'
TBLPROPERTIES (
  'delta.enableChangeDataFeed' = 'true',
  'delta.checkpointInterval' = '25',
  'delta.logRetentionDuration' = 'interval 365 days',
  'delta.deletedFileRetentionDuration' = 'interval 7 days'
);
