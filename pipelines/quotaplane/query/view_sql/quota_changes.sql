-- Changes of quotas: a row for each change and dimension.
SELECT
  resource_group, dimension, version,
  min(changed_at) AS changed_at, min(changed_by) AS changed_by,
  min(why) AS why,
  bool_or(change = 'insert') AS created, bool_or(change = 'delete') AS deleted,
  max(quota) FILTER (WHERE change IN ('update_preimage', 'delete')) AS from_per_s,
  max(quota) FILTER (WHERE change IN ('update_postimage', 'insert')) AS to_per_s,
  coalesce(max(mode) FILTER (WHERE change IN ('update_postimage', 'insert')), 'hard') AS mode,
  coalesce(
    max(enforcement_percent) FILTER (WHERE change IN ('update_postimage', 'insert')), 100
  ) AS enforcement_percent
FROM resource_group_changes by_dimension(quota: %_per_s)
GROUP BY resource_group, dimension, version
