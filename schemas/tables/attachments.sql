-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE attachments (
  kind STRING NOT NULL COMMENT 'tenant or namespace',
  name STRING NOT NULL COMMENT 'of the tenant; of the namespace with its tenant: acme/a',
  resource_group STRING NOT NULL COMMENT 'name of the resource group',
  updated_at TIMESTAMP NOT NULL COMMENT 'when the row was last written',
  updated_by STRING NOT NULL COMMENT 'who wrote it'
)
USING delta
COMMENT 'Tenants and namespaces attached to resource groups, where no Pulsar cluster keeps that. Its change feed says who changed what, when, from and to.'
TBLPROPERTIES (
  'delta.enableChangeDataFeed' = 'true',
  'delta.checkpointInterval' = '100',
  'delta.logRetentionDuration' = 'interval 365 days',
  'delta.deletedFileRetentionDuration' = 'interval 7 days'
);
