-- Findings of earlier nights by these evaluators on runs that they judge again.
SELECT DISTINCT f.finding_id
FROM findings AS f
SEMI JOIN (SELECT run_id FROM evaluation_runs WHERE night < $night::DATE) AS n USING (run_id)
SEMI JOIN (SELECT unnest($judged::VARCHAR[]) AS trajectory_id) AS a USING (trajectory_id)
WHERE f.state IS DISTINCT FROM 'resolved' AND f.evaluator IN (SELECT unnest($evaluators::VARCHAR[]))
