-- Numbers of the runs of one side of a comparison.
SELECT trajectory_id, agent_name, task_id, trial,
    -- The price of a part is not that of a run.
    CASE WHEN unpriced_model_calls = 0 THEN cost_usd END AS cost_usd, duration_ms, total_tokens
FROM trajectories
ORDER BY ALL
