-- Calls of each judged run that have their partner in the accepted sequence closest to it, of all calls of the run.
SELECT t.trajectory_id, t.task_id, coalesce(sum(m.matched), 0)::BIGINT AS hits, coalesce(sum(m.run_length), 0)::BIGINT AS size,
    (count(m.matched) = 0)::INTEGER AS blind
FROM trajectories AS t
SEMI JOIN judged AS j ON j.trajectory_id = t.trajectory_id
JOIN (SELECT trajectory_id FROM sequence_matches GROUP BY trajectory_id) AS asked ON asked.trajectory_id = t.trajectory_id
LEFT JOIN sequence_matches AS m ON m.trajectory_id = t.trajectory_id AND m.closest AND m.not_evaluable IS NULL
GROUP BY t.trajectory_id, t.task_id
ORDER BY t.trajectory_id
