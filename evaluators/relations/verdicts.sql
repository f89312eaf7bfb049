-- One verdict per trial: a checker's goes before a person's, a person's before a judge's. Verdicts on trials that are not
-- in the store count for pass@k, if the whole store is judged. A trial could not run where it was recorded with neither
-- verdict nor score, or where its run broke off, or its agent raised, and has none while other trials of its task have one.
WITH failed_agents AS (
    SELECT trajectory_id
    FROM steps
    WHERE kind = 'agent'
    GROUP BY trajectory_id
    -- The outermost agent starts first and lasts longest.
    HAVING arg_min(status, (start_time, -duration_ms)) <> 'ok'
),
ranked AS (
    SELECT trajectory_id, task_id, count(score) AS scores,
        arg_min(passed, (CASE source WHEN 'checker' THEN 1 WHEN 'human' THEN 2 ELSE 3 END, source)) AS passed
    FROM outcomes
    GROUP BY trajectory_id, task_id
),
trials AS (
    SELECT t.trajectory_id, t.task_id, r.passed, t.cost_usd, t.unpriced_model_calls, t.trial,
        CASE WHEN r.trajectory_id IS NOT NULL THEN r.passed IS NULL AND r.scores = 0
            ELSE t.complete AND (NOT t.root_ended OR t.trajectory_id IN (FROM failed_agents)) AND t.task_id IN (SELECT task_id FROM ranked WHERE passed IS NOT NULL) END AS could_not_run
    FROM trajectories AS t
    LEFT JOIN ranked AS r USING (trajectory_id)
    UNION ALL
    SELECT NULL, task_id, arg_min(passed, (CASE source WHEN 'checker' THEN 1 WHEN 'human' THEN 2 ELSE 3 END, source)), NULL, NULL, trial,
        count(passed) + count(score) = 0
    FROM stored_outcomes AS o
    WHERE $whole_store AND task_id IS NOT NULL
        AND NOT EXISTS (FROM stored_trajectories AS t WHERE t.trajectory_id = o.trajectory_id)
        AND NOT EXISTS (FROM stored_trajectories AS t WHERE t.task_id = o.task_id AND t.trial IS NOT DISTINCT FROM o.trial)
    GROUP BY task_id, trial
)
SELECT trajectory_id, task_id, coalesce(passed, FALSE) AS passed, cost_usd, unpriced_model_calls, could_not_run, trial
FROM trials
WHERE passed IS NOT NULL OR could_not_run
ORDER BY ALL
