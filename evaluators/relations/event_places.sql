-- Steps of some runs, the agent's own before the others, with what an event needs to point at one.
SELECT trajectory_id, trace_id, span_id, response_id
FROM steps
SEMI JOIN (SELECT unnest($runs::VARCHAR[]) AS trajectory_id) AS r USING (trajectory_id)
WHERE duplicate_of IS NULL
ORDER BY trajectory_id, kind <> 'agent', start_time, step_index, span_id
