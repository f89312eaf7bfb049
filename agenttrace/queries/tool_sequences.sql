-- Which sequences of tools are the most common?
-- agent: only runs of this agent
-- task: only runs of this task

SELECT
    array_to_string(tools, ' -> ') AS sequence, count(*) AS runs, round(count(*) / sum(count(*)) OVER (), 4) AS share,
    count(*) FILTER (WHERE error_count > 0) AS runs_with_errors, min(trajectory_id) AS example
FROM trajectories
WHERE complete
    AND (getvariable('agent') IS NULL OR agent_name = getvariable('agent'))
    AND (getvariable('task') IS NULL OR task_id = getvariable('task'))
GROUP BY tools
ORDER BY runs DESC, sequence
