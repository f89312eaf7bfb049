-- Judged runs of the given cases.
SELECT task_id, list_sort(list(trajectory_id)) AS runs
FROM trajectories
WHERE task_id IN (SELECT unnest($case_ids::VARCHAR[]))
GROUP BY task_id
ORDER BY task_id
