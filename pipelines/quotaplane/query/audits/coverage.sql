-- When were a broker's reports missing?
--
-- One row for each broker and time without its reports, since it first reported. until_at is empty
-- while they are still missing. rounds: so many rounds the job ran in that time; 0: the job did not
-- run, or lost these reports; else the broker did not report, or its reports were lost before.
-- :least_s = 60  shorter times are left out, seconds
WITH gaps AS (
  SELECT
    broker, until_at AS from_at, lead(from_at) OVER (PARTITION BY broker ORDER BY from_at) AS until_at
  FROM covered_stretches
),
missing AS (
  SELECT
    broker, from_at, until_at,
    (unix_millis(coalesce(until_at, :until)) - unix_millis(from_at)) / 1000 AS missing_s
  FROM gaps
  WHERE coalesce(until_at, :until) >= :since
)
SELECT m.broker, m.from_at, m.until_at, m.missing_s, count(r.round_at) AS rounds
FROM missing AS m
LEFT JOIN rounds AS r ON r.round_at > m.from_at AND r.round_at < coalesce(m.until_at, :until)
WHERE m.missing_s >= :least_s
GROUP BY m.broker, m.from_at, m.until_at, m.missing_s
ORDER BY m.from_at, m.broker
