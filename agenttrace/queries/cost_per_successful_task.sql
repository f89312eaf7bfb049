-- What does a success cost, task by task? What failed trials cost is part of it; runs without a full price are left out.
-- task: only this task

WITH verdicts AS (
    SELECT t.trajectory_id, o.source, o.passed, o.recorded_at
    FROM outcomes AS o
    JOIN trajectories AS t
        ON CASE WHEN o.trajectory_id IS NULL THEN t.task_id = o.task_id AND t.trial IS NOT DISTINCT FROM o.trial
            ELSE t.trajectory_id = o.trajectory_id END
    WHERE o.passed IS NOT NULL
),
-- A checker's verdict goes before a person's, a person's before a judge's; of one source the last counts.
verdict AS (
    SELECT
        trajectory_id,
        arg_min(passed, (CASE source WHEN 'checker' THEN 1 WHEN 'human' THEN 2 ELSE 3 END, -epoch_us(recorded_at), passed)) AS passed
    FROM verdicts
    GROUP BY trajectory_id
)
SELECT
    task_id, count(*) AS trials, count(*) FILTER (WHERE passed) AS passed,
    count(*) FILTER (WHERE cost_usd IS NULL OR unpriced_model_calls > 0) AS trials_without_price,
    round(sum(cost_usd) FILTER (WHERE unpriced_model_calls = 0), 8) AS cost_usd,
    round(
        sum(cost_usd) FILTER (WHERE unpriced_model_calls = 0)
        / nullif(count(*) FILTER (WHERE passed AND cost_usd IS NOT NULL AND unpriced_model_calls = 0), 0), 8
    ) AS cost_per_success_usd
FROM trajectories
JOIN verdict USING (trajectory_id)
WHERE getvariable('task') IS NULL OR task_id = getvariable('task')
GROUP BY task_id
ORDER BY cost_per_success_usd DESC NULLS FIRST, task_id
