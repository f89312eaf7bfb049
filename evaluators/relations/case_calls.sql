-- The executed tool calls of runs that have a case, in order; a run without one is a single row. `unseen`: why a run that
-- has no tool call here may have made some.
WITH runs AS (
    SELECT trajectory_id, task_id FROM trajectories WHERE list_contains($case_ids::VARCHAR[], task_id)
),
recorded AS (
    SELECT
        s.trajectory_id,
        bool_or(s.kind = 'tool') AS has_calls,
        bool_or(s.kind = 'model' AND json_array_length(s.requested_tool_calls) > 0) AS has_requests,
        -- A reason such as "stop" says that no tool was asked for, even where the output was not captured.
        bool_or(s.kind = 'model' AND (s.output_messages IS NOT NULL OR s.requested_tool_calls IS NOT NULL
            OR NOT regexp_matches(s.finish_reason, 'tool|function', 'i'))) AS has_output
    FROM steps AS s
    SEMI JOIN runs USING (trajectory_id)
    GROUP BY s.trajectory_id
),
executed AS (
    SELECT trajectory_id, span_id, step_index, tool_name, arguments, turn_span_id
    FROM steps
    SEMI JOIN runs USING (trajectory_id)
    WHERE kind = 'tool' AND tool_ran IS DISTINCT FROM FALSE
)
SELECT
    r.trajectory_id, r.task_id,
    CASE
        WHEN c.has_calls THEN NULL
        WHEN c.has_requests THEN 'the model requested tool calls, and none was recorded'
        WHEN c.has_output THEN NULL
        ELSE 'neither a tool call nor the output of a model was recorded'
    END AS unseen,
    e.span_id, e.step_index, coalesce(e.tool_name, '') AS tool_name, e.arguments, e.turn_span_id
FROM runs AS r
LEFT JOIN recorded AS c USING (trajectory_id)
LEFT JOIN executed AS e USING (trajectory_id)
ORDER BY r.trajectory_id, e.step_index, e.span_id
