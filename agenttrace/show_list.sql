-- Latest runs for `agenttrace list`. Times leave as naive UTC: the driver needs a time zone database for others.
SELECT
    trajectory_id, agent_name, service_name, task_id, trial, tool_call_count, error_count, total_tokens, cost_usd,
    unpriced_model_calls, duration_ms, complete,
    start_time AT TIME ZONE 'UTC' AS start_time,
    left(user_input, 200) AS user_input
FROM trajectories
ORDER BY trajectories.start_time DESC NULLS LAST, trajectory_id
LIMIT $limit
