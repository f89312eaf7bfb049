-- What was judged, in one row.
SELECT
    count(*) AS runs,
    coalesce(sum(tool_call_count), 0)::BIGINT AS tool_calls,
    coalesce(sum(model_call_count), 0)::BIGINT AS model_calls,
    coalesce(sum(error_count), 0)::BIGINT AS errors,
    sum(total_tokens)::BIGINT AS tokens,
    sum(cost_usd) AS cost_usd,
    coalesce(sum(unpriced_model_calls), 0)::BIGINT AS unpriced,
    min(start_time) AT TIME ZONE 'UTC' AS first_start,
    max(start_time) AT TIME ZONE 'UTC' AS last_start,
    list_sort(list(DISTINCT agent_name) FILTER (WHERE agent_name IS NOT NULL))[:8] AS agents
FROM trajectories SEMI JOIN reported USING (trajectory_id)
