-- Latest runs for `agenttrace list`, and how many there are; names are compared with patterns such as `restock-*`. Times
-- leave as naive UTC: the driver needs a time zone database for others.
SELECT
    trajectory_id, agent_name, service_name, task_id, trial, tool_call_count, error_count, total_tokens, cost_usd,
    unpriced_model_calls, duration_ms, complete,
    start_time AT TIME ZONE 'UTC' AS start_time,
    left(user_input, 200) AS user_input,
    count(*) OVER () AS total
FROM trajectories
WHERE ($agent IS NULL OR coalesce(agent_name, service_name) GLOB $agent)
    AND ($task IS NULL OR task_id GLOB $task)
    AND ($session IS NULL OR session_id GLOB $session)
    AND ($user IS NULL OR user_id GLOB $user)
    AND ($model IS NULL OR trajectory_id IN (
        SELECT trajectory_id FROM steps WHERE kind = 'model' AND duplicate_of IS NULL AND model GLOB $model
    ))
    AND ($finding IS NULL OR trajectory_id IN (SELECT trajectory_id FROM current_findings WHERE evaluator GLOB $finding))
    AND ($since IS NULL OR start_time >= $since)
    AND ($until IS NULL OR start_time < $until)
    -- What the unpriced calls cost comes on top.
    AND ($min_cost IS NULL OR cost_usd >= $min_cost)
ORDER BY trajectories.start_time DESC NULLS LAST, trajectory_id
LIMIT $limit
