-- What is known of each fault from the nights before $night: the newest row of each, and whether one of its findings
-- stands, on a run that is not judged again.
WITH nights AS (
    SELECT run_id, night, started_at FROM evaluation_runs WHERE night < $night::DATE
),
newest AS (
    SELECT f.*
    FROM faults AS f
    JOIN nights AS n USING (run_id)
    QUALIFY row_number() OVER (PARTITION BY f.fingerprint ORDER BY n.night DESC, n.started_at DESC, n.run_id) = 1
),
standing AS (
    SELECT DISTINCT f.fingerprint
    FROM findings AS f
    SEMI JOIN nights AS n USING (run_id)
    LEFT JOIN (SELECT unnest($judged::VARCHAR[]) AS trajectory_id) AS a USING (trajectory_id)
    WHERE f.state IS DISTINCT FROM 'resolved'
        AND (a.trajectory_id IS NULL OR f.evaluator NOT IN (SELECT unnest($evaluators::VARCHAR[])))
)
SELECT
    f.fingerprint, f.state, f.quiet_nights, f.last_seen::VARCHAR AS last_seen, f.evaluator, f.kind, f.severity,
    f.service_name, f.agent_name, f.task_id, f.tool_name, f.finding_id, f.trajectory_id, f.message,
    s.fingerprint IS NOT NULL AS stands
FROM newest AS f
LEFT JOIN standing AS s USING (fingerprint)
ORDER BY f.fingerprint
