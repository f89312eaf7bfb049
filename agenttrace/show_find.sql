-- Runs whose id, or whose trace's id, begins with $prefix, newest first; without $prefix the newest run of all.
SELECT
    trajectory_id, trace_id, session_id, user_id, tenant_id, service_name, agent_name, task_id, trial,
    tool_call_count, model_call_count, error_count, total_tokens, cost_usd, unpriced_model_calls, duration_ms, complete,
    start_time AT TIME ZONE 'UTC' AS start_time,
    left(user_input, 2000) AS user_input,
    left(final_response, 2000) AS final_response
FROM trajectories
WHERE $prefix IS NULL OR starts_with(trajectory_id, $prefix) OR starts_with(trace_id, $prefix)
ORDER BY trajectories.start_time DESC NULLS LAST, trajectory_id
LIMIT CASE WHEN $prefix IS NULL THEN 1 ELSE 20 END
