-- Runs that have ended and whose last record arrived between $since and $until, each with the evaluators of which no
-- night has judged it, with the records that it has now, in the version and with the configuration given.
WITH wanted AS (
    SELECT unnest($evaluators::VARCHAR[]) AS evaluator, unnest($versions::VARCHAR[]) AS version
),
nights AS (
    SELECT run_id, evaluator
    FROM (
        SELECT run_id, unnest(json_keys(evaluator_versions)) AS evaluator, evaluator_versions
        FROM evaluation_runs
        WHERE night IS NOT NULL AND config_hash = $config_hash
    )
    JOIN wanted USING (evaluator)
    WHERE json_extract_string(evaluator_versions, '$."' || evaluator || '"') = version
),
runs AS (
    SELECT trajectory_id, revision, service_name, agent_name, task_id, start_time
    FROM trajectories
    WHERE complete AND last_arrival >= $since::TIMESTAMPTZ AND last_arrival < $until::TIMESTAMPTZ
),
done AS (
    SELECT DISTINCT r.trajectory_id, n.evaluator
    FROM runs AS r
    JOIN judgements AS j ON j.trajectory_id = r.trajectory_id AND j.revision = r.revision AND j.judged
    JOIN nights AS n ON n.run_id = j.run_id
)
SELECT r.trajectory_id, r.revision, r.trajectory_id NOT IN (SELECT trajectory_id FROM judgements) AS is_new,
    r.service_name, r.agent_name, r.task_id, list_sort(list(w.evaluator)) AS evaluators
FROM runs AS r
CROSS JOIN wanted AS w
ANTI JOIN done AS d ON d.trajectory_id = r.trajectory_id AND d.evaluator = w.evaluator
GROUP BY ALL
ORDER BY min(r.start_time), r.trajectory_id
