-- Executed tool calls of each judged run beside the optimum that its case states; an optimum of 0 makes no ratio.
SELECT t.trajectory_id, t.task_id, t.tool_call_count AS hits, c.optimal_steps AS size, 0 AS blind
FROM trajectories AS t
SEMI JOIN judged AS j ON j.trajectory_id = t.trajectory_id
JOIN cases AS c ON c.case_id = t.task_id
WHERE c.optimal_steps > 0
ORDER BY t.trajectory_id
