-- Findings of one run that stand, worst first, with the step at which each is.
SELECT f.evaluator, f.kind, f.severity, f.span_id, s.step_index, left(f.message, 2000) AS message
FROM current_findings AS f
LEFT JOIN steps AS s ON s.trajectory_id = f.trajectory_id AND s.span_id = f.span_id AND s.duplicate_of IS NULL
WHERE f.trajectory_id = $trajectory_id
ORDER BY list_position(['error', 'warning', 'note'], f.severity), s.step_index, f.evaluator, f.finding_id
LIMIT 200
