-- Executed tool calls of each judged run that failed or timed out, and how many of them a later success of the same tool
-- made up for. Calls of one turn were requested together: none of them answers another's error.
WITH calls AS (
    SELECT trajectory_id, span_id, tool_name, step_index, turn_span_id, status
    FROM steps
    SEMI JOIN judged USING (trajectory_id)
    WHERE kind = 'tool' AND tool_ran IS DISTINCT FROM FALSE AND status IN ('ok', 'error', 'timeout')
),
errors AS (
    SELECT e.trajectory_id, e.span_id, bool_or(s.span_id IS NOT NULL) AS recovered
    FROM calls AS e
    LEFT JOIN calls AS s ON s.trajectory_id = e.trajectory_id AND s.tool_name = e.tool_name AND s.status = 'ok'
        AND s.step_index > e.step_index AND (s.turn_span_id = e.turn_span_id) IS NOT TRUE
    WHERE e.status <> 'ok'
    GROUP BY e.trajectory_id, e.span_id
)
SELECT e.trajectory_id, t.task_id, count(*) FILTER (WHERE e.recovered) AS hits, count(*) AS size, 0 AS blind
FROM errors AS e
JOIN trajectories AS t ON t.trajectory_id = e.trajectory_id
GROUP BY e.trajectory_id, t.task_id
ORDER BY e.trajectory_id
