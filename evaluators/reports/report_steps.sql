-- Steps of the runs that the report tells: the first $limit of each run, and each step at fault wherever it stands.
-- Texts are cut here, with their length beside them: a report has to open in a browser.
WITH ranked AS (
    SELECT
        *,
        list_contains($faulty::VARCHAR[], trajectory_id || ' ' || span_id) AS at_fault,
        row_number() OVER (PARTITION BY trajectory_id ORDER BY start_time NULLS LAST, step_index NULLS FIRST, span_id) AS place,
        count(*) OVER (PARTITION BY trajectory_id) AS steps
    FROM steps
    WHERE list_contains($runs::VARCHAR[], trajectory_id)
      AND duplicate_of IS NULL
      AND (kind <> 'other' OR list_contains($faulty::VARCHAR[], trajectory_id || ' ' || span_id))
)
SELECT
    trajectory_id, span_id, step_index, kind, name, agent_name, tool_name, model, status, mutability, effect, origin,
    parent_span_id, turn_span_id, epoch_us(start_time) AS began_us, duration_ms, input_tokens, output_tokens, cost_usd, error_type, error_source, place, steps,
    left(arguments::VARCHAR, 4000) AS arguments, len(arguments::VARCHAR) AS arguments_length,
    left(observation::VARCHAR, 2000) AS observation, len(observation::VARCHAR) AS observation_length,
    left(thought, 2000) AS thought, len(thought) AS thought_length,
    left(error_message, 1000) AS error_message, len(error_message) AS error_message_length,
    CASE WHEN len(output_messages::VARCHAR) <= 50000 THEN output_messages::VARCHAR END AS output_messages,
    CASE WHEN len(requested_tool_calls::VARCHAR) <= 20000 THEN requested_tool_calls::VARCHAR END
        AS requested_tool_calls
FROM ranked
WHERE place <= $limit OR at_fault
ORDER BY trajectory_id, place
