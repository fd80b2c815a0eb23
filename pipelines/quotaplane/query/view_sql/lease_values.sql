-- The newest state of each broker's use of each group: a row for each dimension.
SELECT
  epoch, seq, round_at, broker, resource_group, dimension, broker_status, seen_at, has_limit,
  enforced, lease_ends_at, used_per_s, demand_per_s, limit_per_s
FROM leases by_dimension(
  used_per_s: used_%_per_s, demand_per_s: demand_%_per_s, limit_per_s: limit_%_per_s
)
