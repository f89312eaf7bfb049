-- Faults that an evaluation of a night has found resolved; the columns of `Fault`.
SELECT fingerprint, state, quiet_nights, last_seen::VARCHAR, evaluator, kind, severity, service_name, agent_name, task_id, tool_name,
    finding_id, trajectory_id, message
FROM faults
WHERE run_id = $run_id AND state = 'resolved'
ORDER BY fingerprint
