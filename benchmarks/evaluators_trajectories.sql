-- Their runs; one in forty has a call too many, one in fifty is a trial of one of a hundred tasks.
INSERT INTO trajectories BY NAME
SELECT
    trajectory_id, any_value(trace_id) AS trace_id, 'session' || trajectory_id AS session_id, 'acme' AS tenant_id, 'shop' AS service_name, 'buyer' AS agent_name,
    CASE WHEN hash(trajectory_id) % 50 = 1 THEN 'task' || hash(trajectory_id) % 100 END AS task_id, 'Order rice.' AS user_input,
    'I placed the order PO-1.' AS final_response, list(tool_name ORDER BY step_index) FILTER (WHERE kind = 'tool') AS tools, 11 + (hash(trajectory_id) % 40 = 0)::INTEGER AS tool_call_count, 8 AS model_call_count,
    0 AS error_count, 3 AS mutation_count, 7200 AS input_tokens, 800 AS output_tokens, 8000 AS total_tokens, 0.02 AS cost_usd, 0 AS unpriced_model_calls,
    min(start_time) AS start_time, max(end_time) AS end_time, 20000.0 AS duration_ms, TRUE AS complete, TRUE AS root_ended, max(end_time) AS last_arrival
FROM steps GROUP BY trajectory_id
ORDER BY start_time
