-- Heads of the runs that the report tells.
SELECT
    trajectory_id, trace_id, session_id, user_id, tenant_id, service_name, agent_name, task_id, trial,
    tool_call_count, model_call_count, error_count, total_tokens, cost_usd, unpriced_model_calls, duration_ms, complete,
    start_time AT TIME ZONE 'UTC' AS start_time, epoch_us(start_time) AS began_us,
    left(user_input, 2000) AS user_input,
    left(final_response, 3000) AS final_response
FROM trajectories
WHERE list_contains($runs::VARCHAR[], trajectory_id)
