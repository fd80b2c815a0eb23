-- Changes of groups: a row for each setting that is another one, as text.
SELECT
  resource_group, setting, version,
  min(changed_at) AS changed_at, min(changed_by) AS changed_by,
  min(why) AS why,
  CASE WHEN bool_or(change = 'insert') THEN 'created' WHEN bool_or(change = 'delete') THEN 'deleted'
    ELSE 'changed' END AS change,
  max(setting_value) FILTER (WHERE change IN ('update_preimage', 'delete')) AS from_value,
  max(setting_value) FILTER (WHERE change IN ('update_postimage', 'insert')) AS to_value
FROM (
  SELECT
    resource_group, version, changed_at, changed_by, why, change, 'true' AS defined,
    {settings_as_text}
  FROM resource_group_changes
) AS in_words UNPIVOT INCLUDE NULLS (
  setting_value FOR setting IN (defined AS defined, {settings})
)
GROUP BY resource_group, setting, version
HAVING
  max(setting_value) FILTER (WHERE change IN ('update_preimage', 'delete'))
  IS DISTINCT FROM max(setting_value) FILTER (WHERE change IN ('update_postimage', 'insert'))
