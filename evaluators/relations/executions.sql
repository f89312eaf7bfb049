-- The calls of one run that ran, in order, with what went in and came out.
SELECT span_id, step_index, tool_name, arguments::VARCHAR AS arguments, observation::VARCHAR AS observation
FROM steps
WHERE trajectory_id = $trajectory_id AND kind = 'tool' AND tool_ran IS DISTINCT FROM FALSE AND tool_name IS NOT NULL
ORDER BY step_index, span_id
