-- Limits since then, and of each broker and group that reports the one in force then. Only that
-- earlier one matters; few columns are read to find it. Most rows are of groups that did not report.
WITH reported AS (
  SELECT DISTINCT broker, resource_group FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
),
newest_of_epochs AS (
  SELECT l.broker, l.resource_group, l.epoch, max(l.seq) AS seq
  FROM limits AS l
  JOIN reported AS r ON r.broker = l.broker AND r.resource_group = l.resource_group
  WHERE l.round_at < :usage_since
  GROUP BY l.broker, l.resource_group, l.epoch
),
newest AS (
  SELECT broker, resource_group, max(epoch) AS epoch, max_by(seq, epoch) AS seq
  FROM newest_of_epochs
  GROUP BY broker, resource_group
)
SELECT l.*
FROM limits AS l
JOIN newest AS n ON n.broker = l.broker AND n.resource_group = l.resource_group
  AND n.epoch = l.epoch AND n.seq = l.seq
UNION ALL
SELECT * FROM limits WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
