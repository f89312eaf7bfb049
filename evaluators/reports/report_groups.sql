-- Duration and cost by agent, by task and by model: of runs, and for models of calls. The largest groups of each kind.
WITH numbers AS (
    SELECT 'agent' AS kind, agent_name AS name, duration_ms, CASE WHEN unpriced_model_calls = 0 THEN cost_usd END AS cost_usd, total_tokens AS tokens
    FROM trajectories SEMI JOIN reported USING (trajectory_id)
    UNION ALL
    SELECT 'task', task_id, duration_ms, CASE WHEN unpriced_model_calls = 0 THEN cost_usd END, total_tokens
    FROM trajectories SEMI JOIN reported USING (trajectory_id)
    UNION ALL
    SELECT 'model', model, duration_ms, cost_usd, coalesce(input_tokens, 0) + output_tokens
    FROM steps SEMI JOIN reported USING (trajectory_id)
    WHERE kind = 'model' AND duplicate_of IS NULL
)
SELECT
    kind, name, count(*) AS n,
    quantile_cont(duration_ms, [0.5, 0.95, 0.99]) AS duration_ms,
    quantile_cont(cost_usd, [0.5, 0.95, 0.99]) AS cost_usd,
    count(*) - count(cost_usd) AS unpriced,
    sum(cost_usd) AS total_usd, sum(tokens)::BIGINT AS tokens
FROM numbers
WHERE name IS NOT NULL
GROUP BY kind, name
QUALIFY row_number() OVER (PARTITION BY kind ORDER BY sum(cost_usd) DESC NULLS LAST, count(*) DESC, name) <= $most
ORDER BY list_position(['agent', 'task', 'model'], kind), total_usd DESC NULLS LAST, n DESC, name
