-- What an evaluation found, worst first, of equal ones those that are news; the columns of `Finding`.
SELECT finding_id, fingerprint, evaluator, kind, severity, state, trajectory_id, trace_id, span_id, related_span_ids, tool_name,
    message, evidence
FROM findings
WHERE run_id = $run_id AND state IS DISTINCT FROM 'resolved'
ORDER BY list_position(['error', 'warning', 'note'], severity), coalesce(list_position(['new', 'back'], state), 3),
    evaluator, kind, trajectory_id, finding_id
