-- What is known of each judged run beside its steps; runs that are there as context are left out.
SELECT trajectory_id, service_name, agent_name, task_id
FROM trajectories
SEMI JOIN judged USING (trajectory_id)
ORDER BY trajectory_id
