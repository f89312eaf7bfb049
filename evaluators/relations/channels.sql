-- Verdicts that count on one run, by channel.
SELECT source, passed, score, detail, recorded_at AT TIME ZONE 'UTC' AS recorded_at
FROM outcomes
WHERE trajectory_id = $trajectory_id
ORDER BY list_position(['checker', 'judge', 'human'], source)
