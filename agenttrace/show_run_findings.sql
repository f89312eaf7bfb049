-- Findings of one run, from the last evaluation of each evaluator that judged this run: an evaluation of one evaluator,
-- or of last night's runs only, does not make the other findings go away.
WITH run AS (
    SELECT trajectory_id, start_time FROM trajectories WHERE trajectory_id = $trajectory_id
),
evaluators AS (
    SELECT run_id, started_at, since, until, night, unnest(json_keys(evaluator_versions)) AS evaluator FROM evaluation_runs
),
last_runs AS (
    SELECT evaluator, arg_max(run_id, (started_at, run_id)) AS run_id
    FROM evaluators, run
    WHERE CASE WHEN night IS NULL
        THEN (since IS NULL OR start_time >= since) AND (until IS NULL OR start_time < until)
        ELSE run_id IN (SELECT run_id FROM judgements WHERE trajectory_id = $trajectory_id AND judged) END
    GROUP BY evaluator
)
SELECT
    findings.evaluator, findings.kind, severity, findings.span_id, steps.step_index, left(message, 2000) AS message
FROM findings
JOIN last_runs USING (run_id, evaluator)
LEFT JOIN steps
    ON steps.trajectory_id = findings.trajectory_id AND steps.span_id = findings.span_id AND duplicate_of IS NULL
WHERE findings.trajectory_id = $trajectory_id AND state IS DISTINCT FROM 'resolved'
ORDER BY list_position(['error', 'warning', 'note'], severity), steps.step_index, findings.evaluator, finding_id
LIMIT 200
