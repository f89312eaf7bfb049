-- The last $most nights up to this one: what was measured over all runs, and how many runs and findings there were.
WITH last AS (
    SELECT DISTINCT night FROM evaluation_runs WHERE night <= $night::DATE ORDER BY night DESC LIMIT $most
),
-- A night may have several evaluations: what a backfill has judged later.
nights AS (
    SELECT night, run_id, started_at FROM evaluation_runs SEMI JOIN last USING (night)
),
numbers AS (
    SELECT n.night, metric, coalesce(dimensions ->> '$.quantile', '') AS point, value, low, high
    FROM measurements AS m
    JOIN nights AS n USING (run_id)
    WHERE json_keys(dimensions) = [] OR (json_keys(dimensions) = ['quantile'] AND dimensions ->> '$.quantile' IN ('p50', 'p95'))
    -- That over the most runs is the night's.
    QUALIFY row_number() OVER (PARTITION BY n.night, metric, point ORDER BY m.n DESC, n.started_at DESC, n.run_id) = 1
    UNION ALL
    SELECT n.night, 'runs', '', count(DISTINCT j.trajectory_id), NULL, NULL
    FROM nights AS n
    LEFT JOIN judgements AS j ON j.run_id = n.run_id AND j.judged
    GROUP BY n.night
    UNION ALL
    SELECT n.night, 'findings', s.severity, count(DISTINCT f.finding_id), NULL, NULL
    -- A night without runs has no findings, which is not the same as none.
    FROM (SELECT * FROM nights SEMI JOIN (SELECT night FROM evaluation_runs GROUP BY night HAVING sum(trajectories) > 0) USING (night)) AS n
    CROSS JOIN (SELECT unnest(['error', 'warning', 'note']) AS severity) AS s
    LEFT JOIN findings AS f ON f.run_id = n.run_id AND f.severity = s.severity AND f.state IS DISTINCT FROM 'resolved'
    GROUP BY n.night, s.severity
)
SELECT l.night::VARCHAR AS night, metric, point, value, low, high
FROM last AS l
LEFT JOIN numbers USING (night)
ORDER BY night, metric, point
