-- What a run's own agent wrote to the user: answers of its models that asked for no tool, in order, then the final
-- response, which is mostly the last of them again.
WITH outputs AS (
    SELECT s.trajectory_id, s.trace_id, s.span_id, s.step_index, unnest(flatten(list_transform(
        from_json(s.output_messages, '[{"parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]'), lambda m: coalesce(m.parts, [])))) AS part
    FROM steps AS s
    JOIN trajectories AS t USING (trajectory_id)
    -- An agent below it writes to the agent, not to the user.
    WHERE s.kind = 'model' AND s.requested_tool_calls::VARCHAR = '[]' AND s.agent_name IS NOT DISTINCT FROM t.agent_name
),
texts AS (
    SELECT trajectory_id, trace_id, span_id, step_index, part.content AS text
    FROM outputs
    WHERE part.type = 'text' AND part.content IS NOT NULL
    UNION ALL
    SELECT trajectory_id, trace_id, NULL, NULL, final_response
    FROM trajectories
    WHERE final_response IS NOT NULL
)
SELECT trajectory_id, trace_id, span_id, text
FROM texts
ORDER BY trajectory_id, step_index NULLS LAST, span_id, text
