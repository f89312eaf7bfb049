-- Runs that have ended, and that no night has seen with the records that they have now; and whether one has seen them at
-- all.
SELECT t.trajectory_id, t.revision, t.trajectory_id NOT IN (SELECT trajectory_id FROM judgements) AS is_new,
    t.service_name, t.agent_name, t.task_id
FROM trajectories AS t
ANTI JOIN judgements AS j ON j.trajectory_id = t.trajectory_id AND j.revision = t.revision
WHERE t.complete
ORDER BY t.start_time, t.trajectory_id
