-- One verdict per trial: a checker's goes before a person's, a person's before a judge's. Verdicts on trials that are not
-- in the store count for pass@k, if the whole store is judged.
WITH ranked AS (
    SELECT trajectory_id, arg_min(passed, (CASE source WHEN 'checker' THEN 1 WHEN 'human' THEN 2 ELSE 3 END, source)) AS passed
    FROM outcomes
    WHERE passed IS NOT NULL
    GROUP BY trajectory_id
)
SELECT t.trajectory_id, t.task_id, r.passed, t.cost_usd, t.unpriced_model_calls
FROM trajectories AS t
JOIN ranked AS r USING (trajectory_id)
UNION ALL
SELECT NULL, task_id, arg_min(passed, (CASE source WHEN 'checker' THEN 1 WHEN 'human' THEN 2 ELSE 3 END, source)), NULL, NULL
FROM stored_outcomes AS o
WHERE $whole_store AND trajectory_id IS NULL AND task_id IS NOT NULL AND passed IS NOT NULL
    AND NOT EXISTS (FROM stored_trajectories AS t WHERE t.task_id = o.task_id AND t.trial IS NOT DISTINCT FROM o.trial)
GROUP BY task_id, trial
ORDER BY ALL
