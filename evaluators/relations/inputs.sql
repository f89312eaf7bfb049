-- What the runs in $runs were told by the user and by their tools.
WITH calls AS (
    SELECT trajectory_id, unnest([arg_min(input_messages, step_index), arg_max(input_messages, step_index)]) AS messages
    FROM steps
    WHERE kind = 'model' AND list_contains($runs::VARCHAR[], trajectory_id)
    GROUP BY trajectory_id, agent_name
),
inputs AS (
    SELECT DISTINCT trajectory_id, unnest(from_json(messages, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]')) AS message
    FROM calls
),
parts AS (
    SELECT trajectory_id, unnest(message.parts) AS part
    FROM inputs
    WHERE message.role = 'user'
)
SELECT trajectory_id, 'user' AS source, part.content AS text
FROM parts
WHERE part.type = 'text' AND part.content IS NOT NULL
UNION
SELECT trajectory_id, 'user', user_input
FROM trajectories
WHERE user_input IS NOT NULL AND list_contains($runs::VARCHAR[], trajectory_id)
UNION
SELECT trajectory_id, 'tool', coalesce(observation ->> '$', observation::VARCHAR)
FROM steps
WHERE observation IS NOT NULL AND list_contains($runs::VARCHAR[], trajectory_id)
ORDER BY ALL
