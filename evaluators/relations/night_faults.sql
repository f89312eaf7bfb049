-- Faults that the nights before $night have found, each as it was found last, and in how many nights since then its
-- evaluator judged its agent, or its agent at its task, at least $min_runs times without a lack of evidence. A fault does
-- not stand if all of its findings are of runs that are judged again.
WITH nights AS (
    SELECT run_id, night, json_keys(evaluator_versions) AS evaluators FROM evaluation_runs WHERE night < $night::DATE
),
seen AS (
    SELECT f.*, n.night, j.service_name, j.agent_name, j.task_id, f.state IS NOT DISTINCT FROM 'resolved' AS is_resolved,
        a.trajectory_id IS NOT NULL AND f.evaluator IN (SELECT unnest($evaluators::VARCHAR[])) AS is_judged_again
    FROM findings AS f
    JOIN nights AS n USING (run_id)
    LEFT JOIN judgements AS j USING (run_id, trajectory_id)
    LEFT JOIN (SELECT unnest($judged::VARCHAR[]) AS trajectory_id) AS a USING (trajectory_id)
),
faults AS (
    SELECT
        fingerprint,
        max(night) FILTER (NOT is_resolved) AS last_seen,
        max(night) FILTER (is_resolved) AS resolved,
        coalesce(bool_or(NOT is_judged_again) FILTER (NOT is_resolved), FALSE) AS stands,
        arg_max(seen, (night, finding_id)) FILTER (NOT is_resolved) AS last
    FROM seen
    GROUP BY fingerprint
),
unresolved AS (
    SELECT fingerprint, last_seen, unnest(last) FROM faults WHERE stands AND (resolved IS NULL OR resolved <= last_seen)
),
-- Runs that would have shown the fault: those that its evaluator had no rule or no evidence for say nothing about it.
vouching AS (
    SELECT u.fingerprint, n.night, j.trajectory_id
    FROM unresolved AS u
    JOIN judgements AS j
        ON j.service_name IS NOT DISTINCT FROM u.service_name
        AND j.agent_name IS NOT DISTINCT FROM u.agent_name
        AND j.task_id IS NOT DISTINCT FROM u.task_id
        AND j.judged
    JOIN nights AS n ON n.run_id = j.run_id AND n.night > u.last_seen AND list_contains(n.evaluators, u.evaluator)
    ANTI JOIN not_evaluable AS b
        ON b.run_id = j.run_id
        AND b.evaluator = u.evaluator
        -- Not having seen other runs of a session says nothing about the run itself.
        AND b.kind <> 'across_runs'
        AND coalesce(b.trajectory_id, j.trajectory_id) = j.trajectory_id
),
quiet AS (
    SELECT fingerprint, count(*) AS nights
    FROM (SELECT fingerprint, night FROM vouching GROUP BY ALL HAVING count(DISTINCT trajectory_id) >= $min_runs)
    GROUP BY fingerprint
)
SELECT
    f.fingerprint, f.last_seen::VARCHAR AS last_seen, f.resolved::VARCHAR AS resolved, f.stands,
    coalesce(q.nights, 0) AS quiet_nights,
    last.service_name, last.agent_name, last.task_id,
    last.finding_id, last.fingerprint, last.evaluator, last.kind, last.severity, NULL AS state, last.trajectory_id,
    last.trace_id, last.span_id, last.related_span_ids, last.tool_name, last.message, last.evidence
FROM faults AS f
LEFT JOIN quiet AS q USING (fingerprint)
ORDER BY f.fingerprint
