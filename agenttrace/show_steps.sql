-- Steps of one run in the order of the tree's siblings. Texts are cut here: a line shows no more, and a
-- megabyte of observation per step would be read for nothing.
WITH run AS (
    SELECT * FROM steps WHERE trajectory_id = $trajectory_id
),
-- A child of a row that another row stands for hangs below that other row.
stand_ins AS (
    SELECT span_id, any_value(duplicate_of) AS stand_in FROM run WHERE duplicate_of IS NOT NULL GROUP BY span_id
)
SELECT
    run.span_id, coalesce(stand_in, parent_span_id) AS parent_span_id, step_index, kind, name, agent_name, tool_name,
    model, status, mutability, effect, duration_ms, input_tokens, output_tokens, cost_usd, error_type, error_source,
    CASE WHEN len(arguments::VARCHAR) <= 4000 THEN arguments::VARCHAR
         ELSE left(arguments::VARCHAR, 400) || '...' END AS arguments,
    left(observation::VARCHAR, 1000) AS observation,
    left(thought, 1000) AS thought,
    CASE WHEN len(requested_tool_calls::VARCHAR) <= 20000 THEN requested_tool_calls::VARCHAR END
        AS requested_tool_calls,
    left(error_message, 1000) AS error_message
FROM run
LEFT JOIN stand_ins ON stand_ins.span_id = run.parent_span_id
WHERE duplicate_of IS NULL
ORDER BY start_time NULLS LAST, step_index NULLS FIRST, run.span_id
LIMIT $limit
