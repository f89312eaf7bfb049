-- Executed tool calls of each judged run that failed or timed out, and how many of them a later success of the same tool
-- made up for. Calls of one turn were requested together: none of them answers another's error.
WITH calls AS (
    SELECT trajectory_id, span_id, tool_name, step_index, turn_span_id, status
    FROM steps
    SEMI JOIN judged USING (trajectory_id)
    WHERE kind = 'tool' AND tool_ran IS DISTINCT FROM FALSE AND status IN ('ok', 'error', 'timeout')
),
-- The last success of each tool of a run, and beside it the last one of another turn: an earlier one makes up for nothing
-- that these two do not.
last_successes AS (
    SELECT trajectory_id, tool_name, max({'step': step_index, 'turn': turn_span_id}, 2) AS calls
    FROM (
        SELECT trajectory_id, tool_name, turn_span_id, max(step_index) AS step_index
        FROM calls
        WHERE status = 'ok'
        GROUP BY trajectory_id, tool_name, turn_span_id
    )
    GROUP BY trajectory_id, tool_name
),
errors AS (
    SELECT
        e.trajectory_id, e.span_id,
        bool_or(len(list_filter(coalesce(s.calls, []), lambda c: c.step > e.step_index AND (c.turn = e.turn_span_id) IS NOT TRUE)) > 0) AS recovered
    FROM calls AS e
    LEFT JOIN last_successes AS s USING (trajectory_id, tool_name)
    WHERE e.status <> 'ok'
    GROUP BY e.trajectory_id, e.span_id
)
SELECT e.trajectory_id, t.task_id, count(*) FILTER (WHERE e.recovered) AS hits, count(*) AS size, 0 AS blind
FROM errors AS e
JOIN trajectories AS t ON t.trajectory_id = e.trajectory_id
GROUP BY e.trajectory_id, t.task_id
ORDER BY e.trajectory_id
