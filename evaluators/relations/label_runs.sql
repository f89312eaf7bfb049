-- Runs that the newest evaluation of a label covered: those in its period that had arrived when it began.
WITH evaluation AS (
    SELECT since, until, started_at FROM evaluation_runs WHERE label = $label ORDER BY started_at DESC, run_id DESC LIMIT 1
)
SELECT t.trajectory_id
FROM trajectories AS t
JOIN evaluation AS e ON t.last_arrival <= e.started_at
    AND (e.since IS NULL OR t.start_time >= e.since) AND (e.until IS NULL OR t.start_time < e.until)
ORDER BY ALL
