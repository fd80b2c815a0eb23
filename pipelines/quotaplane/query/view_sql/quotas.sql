-- The quotas of now: a row for each group and dimension with one.
SELECT
  resource_group, dimension, quota_per_s, coalesce(mode, 'hard') AS mode, updated_at, updated_by
FROM resource_groups by_dimension(quota_per_s: %_per_s)
WHERE quota_per_s IS NOT NULL
