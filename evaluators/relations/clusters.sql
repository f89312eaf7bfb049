-- Runs by task, with how many of them are flagged and how many could not be judged. A run without a task is alone.
SELECT task_id, count(*) FILTER (WHERE f.trajectory_id IS NULL AND b.trajectory_id IS NOT NULL) AS blind,
    count(f.trajectory_id) AS flagged, count(*) AS runs
FROM trajectories AS t
LEFT JOIN (SELECT unnest($flagged::VARCHAR[]) AS trajectory_id) AS f USING (trajectory_id)
LEFT JOIN (SELECT unnest($blind::VARCHAR[]) AS trajectory_id) AS b USING (trajectory_id)
GROUP BY task_id
ORDER BY task_id
