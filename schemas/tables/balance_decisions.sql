-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
CREATE TABLE balance_decisions (
  epoch BIGINT NOT NULL COMMENT 'bumped for each new checkpoint or owner',
  seq BIGINT NOT NULL COMMENT 'the round: id of the micro-batch',
  round_at TIMESTAMP NOT NULL COMMENT 'the round\'s now',
  date DATE NOT NULL COMMENT 'UTC day of `round_at`; the partition that maintain expires',
  cluster STRING NOT NULL COMMENT 'the setting balance.cluster',
  kind STRING NOT NULL COMMENT 'move, split or skip',
  place BIGINT NOT NULL COMMENT 'its place in the round: moves are made in this order',
  subject STRING NOT NULL COMMENT 'the bundle; of a skip also a broker; empty: the cluster',
  source STRING NOT NULL COMMENT 'the broker that has the bundle; empty for a skip',
  target STRING NOT NULL COMMENT 'the broker that is to get it; empty: placement chooses',
  bytes_per_s DOUBLE COMMENT 'a move\'s load, in and out together',
  boundaries ARRAY<BIGINT> NOT NULL COMMENT 'first hashes of the new bundles of a split',
  label STRING NOT NULL COMMENT 'the reason as one word',
  reason STRING NOT NULL COMMENT 'the reason as a sentence with numbers',
  bundles BIGINT NOT NULL COMMENT 'how many bundles the row is about',
  plan_hash STRING NOT NULL COMMENT 'the plan that the row belongs to; empty: no plan',
  enforced BOOLEAN NOT NULL COMMENT 'false: proposed, executed only if somebody approved it'
)
USING delta
PARTITIONED BY (date)
COMMENT 'What the balancer decided, and why: one row per move, split, refusal or skip.'
TBLPROPERTIES (
  'delta.checkpointInterval' = '25',
  'delta.enableExpiredLogCleanup' = 'true',
  'delta.logRetentionDuration' = 'interval 30 minutes',
  'delta.deletedFileRetentionDuration' = 'interval 30 minutes'
);
