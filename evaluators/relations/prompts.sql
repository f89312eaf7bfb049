-- Each different system prompt, and the runs that had it. Model calls repeat what came before, so the first of each
-- agent is enough.
WITH calls AS (
    SELECT trajectory_id, arg_min(input_messages, step_index) AS messages
    FROM steps
    WHERE kind = 'model' AND input_messages IS NOT NULL
    GROUP BY trajectory_id, agent_name
),
inputs AS (
    SELECT trajectory_id, unnest(from_json(messages, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]')) AS message
    FROM calls
),
parts AS (
    SELECT trajectory_id, unnest(message.parts) AS part
    FROM inputs
    WHERE message.role IN ('system', 'developer')
)
SELECT part.content AS text, list(DISTINCT trajectory_id) AS trajectory_ids
FROM parts
WHERE part.type = 'text' AND part.content IS NOT NULL
GROUP BY part.content
ORDER BY text
