-- Who changed which quota or policy, from what to what, and why?
--
-- One row per setting of a group that differs after the change; change is created, changed or
-- deleted. An empty value is the default: unlimited, for a rate.
SELECT
  changed_at, changed_by, change, resource_group, setting, from_value, to_value, why, version
FROM setting_changes
WHERE changed_at >= :since
ORDER BY version, resource_group, setting
