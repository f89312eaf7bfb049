-- What the assistant wrote, each text once per run: answers of the model, the final response, thoughts.
WITH outputs AS (
    SELECT trajectory_id, trace_id, span_id, step_index, thought,
        from_json(output_messages, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]') AS messages
    FROM steps
    WHERE kind = 'model' AND (output_messages IS NOT NULL OR thought IS NOT NULL)
),
parts AS (
    SELECT trajectory_id, trace_id, span_id, step_index, unnest(list_concat(
        flatten(list_transform(messages, lambda m: coalesce(m.parts, []))),
        CASE WHEN thought IS NULL THEN [] ELSE [{'type': 'reasoning', 'content': thought}] END)) AS part
    FROM outputs
),
texts AS (
    SELECT trajectory_id, trace_id, span_id, step_index, part.content AS text,
        CASE part.type WHEN 'text' THEN 'answer' ELSE 'thought' END AS source
    FROM parts
    WHERE part.type IN ('text', 'reasoning')
    UNION ALL
    SELECT t.trajectory_id, t.trace_id, s.span_id, s.step_index, t.final_response, 'answer'
    FROM trajectories AS t
    LEFT JOIN (
        SELECT trajectory_id, arg_max(span_id, step_index) AS span_id, max(step_index) AS step_index
        FROM steps WHERE kind = 'model' GROUP BY trajectory_id
    ) AS s USING (trajectory_id)
    UNION ALL
    -- Thoughts that the run itself recorded stand on its agent span.
    SELECT trajectory_id, trace_id, span_id, step_index, thought, 'thought'
    FROM steps
    WHERE kind <> 'model' AND thought IS NOT NULL
)
SELECT trajectory_id, arg_min(trace_id, (step_index, span_id)) AS trace_id, arg_min(span_id, (step_index, span_id)) AS span_id,
    trim(text) AS text, min(source) AS source
FROM texts
WHERE trim(text) <> ''
GROUP BY trajectory_id, trim(text)
ORDER BY trajectory_id, span_id, text
