-- What evaluators found wrong with one run at error level, in the order in which it happened.
SELECT f.evaluator, f.kind, f.message, f.span_id, f.related_span_ids, f.tool_name
FROM current_findings AS f
LEFT JOIN steps AS s USING (trajectory_id, span_id)
WHERE f.trajectory_id = $trajectory_id AND f.severity = 'error'
ORDER BY s.step_index, f.evaluator, f.finding_id
