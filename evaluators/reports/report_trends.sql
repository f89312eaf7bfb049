-- The last $most nights up to this one: what was measured over all runs, and how many runs and findings there were.
WITH nights AS (
    SELECT night, arg_max(run_id, (trajectories > 0, started_at, run_id)) AS run_id
    FROM evaluation_runs
    WHERE night <= $night::DATE
    GROUP BY night
    ORDER BY night DESC
    LIMIT $most
),
numbers AS (
    SELECT run_id, metric, coalesce(dimensions ->> '$.quantile', '') AS point, value, low, high
    FROM measurements
    SEMI JOIN nights USING (run_id)
    WHERE json_keys(dimensions) = [] OR (json_keys(dimensions) = ['quantile'] AND dimensions ->> '$.quantile' IN ('p50', 'p95'))
    UNION ALL
    SELECT run_id, 'runs', '', trajectories, NULL, NULL FROM evaluation_runs SEMI JOIN nights USING (run_id)
    UNION ALL
    SELECT n.run_id, 'findings', s.severity, count(f.run_id), NULL, NULL
    FROM nights AS n
    CROSS JOIN (SELECT unnest(['error', 'warning', 'note']) AS severity) AS s
    LEFT JOIN findings AS f ON f.run_id = n.run_id AND f.severity = s.severity AND f.state IS DISTINCT FROM 'resolved'
    GROUP BY n.run_id, s.severity
)
SELECT n.night::VARCHAR AS night, metric, point, value, low, high
FROM nights AS n
LEFT JOIN numbers USING (run_id)
ORDER BY night, metric, point
