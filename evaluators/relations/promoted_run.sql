-- What a benchmark case needs to know of a run, and whether anything has been judged.
SELECT
    task_id, coalesce(agent_name, service_name) AS agent, tenant_id, user_input, initial_state::VARCHAR AS initial_state,
    (SELECT count(*) FROM evaluation_runs) AS evaluations
FROM trajectories
WHERE trajectory_id = $trajectory_id
